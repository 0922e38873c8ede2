//! A body as a blocking reader, so that it can be parsed while it arrives.

use std::io::{self, Read};

use bytes::{Buf as _, Bytes};
use tokio::sync::mpsc;

/// Frames that wait for the reader. hyper reads up to 400 KiB at once.
const MAX_QUEUED_FRAMES: usize = 2;

pub(super) fn body_channel() -> (mpsc::Sender<Bytes>, BodyReader) {
    let (sender, frames) = mpsc::channel(MAX_QUEUED_FRAMES);
    (sender, BodyReader { frames, rest: Bytes::new() })
}

/// Ends when the sender is dropped. Must not be read on a thread of the runtime.
pub(super) struct BodyReader {
    frames: mpsc::Receiver<Bytes>,
    rest: Bytes,
}

impl Read for BodyReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            let Some(frame) = self.frames.blocking_recv() else { return Ok(0) };
            self.rest = frame;
        }
        let length = self.rest.len().min(buffer.len());
        self.rest.copy_to_slice(buffer.get_mut(..length).unwrap_or_default());
        Ok(length)
    }
}
