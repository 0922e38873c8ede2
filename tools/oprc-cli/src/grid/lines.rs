//! Lines of a streamed response (NDJSON).

use anyhow::{Result, bail};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;

use super::transport::GridBody;
use crate::error::CliError;

/// Longer than any record: an object has at most 256 KiB.
const MAX_LINE_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub(crate) struct Lines {
    body: GridBody,
    buffer: BytesMut,
    /// Bytes of the buffer without the end of a line.
    scanned: usize,
}

impl Lines {
    pub(super) fn new(body: GridBody) -> Self {
        Self { body, buffer: BytesMut::new(), scanned: 0 }
    }

    /// The next line without its end; `None` at the end of the stream. Nothing is lost if the future is
    /// dropped.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            let rest = self.buffer.get(self.scanned..).unwrap_or_default();
            if let Some(at) = rest.iter().position(|it| *it == b'\n') {
                let mut line = self.buffer.split_to(self.scanned + at + 1);
                line.truncate(self.scanned + at);
                self.scanned = 0;
                return Ok(Some(line.freeze()));
            }
            self.scanned = self.buffer.len();
            if self.scanned > MAX_LINE_BYTES {
                bail!(CliError::Failed(format!(
                    "the data grid sent a line of more than {MAX_LINE_BYTES} bytes; \
                     check that the address is that of a data grid"
                )));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => bail!(CliError::Unavailable(format!(
                    "the stream of the data grid was interrupted: {error}; repeat the command"
                ))),
                None if self.buffer.is_empty() => return Ok(None),
                None => {
                    self.scanned = 0;
                    return Ok(Some(self.buffer.split().freeze()));
                }
            }
        }
    }
}

pub(crate) fn parse_json<T: DeserializeOwned>(line: &[u8]) -> Result<T, CliError> {
    serde_json::from_slice(line).map_err(|error| {
        CliError::Failed(format!(
            "unexpected response of the data grid: {error}; \
             check that `oprc` and the data grid have the same version"
        ))
    })
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body_util::{BodyExt, StreamBody};
    use hyper::body::Frame;
    use proptest::prelude::*;

    use super::*;

    async fn lines(chunks: Vec<Vec<u8>>) -> Vec<Bytes> {
        let frames = chunks.into_iter().map(|it| Ok(Frame::data(Bytes::from(it))));
        let mut lines = Lines::new(BodyExt::boxed_unsync(StreamBody::new(stream::iter(frames))));
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            all.push(line);
        }
        all
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_a_stream_is_split(
            text in "[a-c\n]{0,40}", at in prop::collection::vec(0_usize..40, 0..6),
        ) {
            let mut at: Vec<_> = at.into_iter().map(|it| it.min(text.len())).collect();
            at.extend([0, text.len()]);
            at.sort_unstable();
            let bytes = text.as_bytes();
            let chunks = at.windows(2).map(|it| bytes[it[0]..it[1]].to_vec()).collect();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let found = runtime.block_on(lines(chunks));
            let mut expected: Vec<_> = text.split('\n').collect();
            expected.pop_if(|last| last.is_empty());
            prop_assert_eq!(found, expected);
        }
    }

    #[tokio::test]
    async fn rejects_endless_lines() {
        let frames = std::iter::repeat_with(|| Ok(Frame::data(Bytes::from(vec![b'x'; 1 << 20]))));
        let body = StreamBody::new(stream::iter(frames));
        let error = Lines::new(BodyExt::boxed_unsync(body)).next().await.unwrap_err();
        assert!(error.to_string().contains("more than 4194304 bytes"), "{error}");
    }
}
