//! Log files of bounded size with one rotated predecessor.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::PathBuf,
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Size at which a log is rotated.
const MAX_SIZE: u64 = 16 << 20;

#[derive(Clone)]
pub(super) struct Log(Arc<Mutex<Open>>);

struct Open {
    path: PathBuf,
    file: File,
    size: u64,
}

impl Log {
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(&path)?;
        let size = file.metadata()?.len();
        Ok(Self(Arc::new(Mutex::new(Open { path, file, size }))))
    }

    /// Copies the output of a process until it closes the pipe.
    pub(super) async fn copy_from(self, mut output: impl AsyncRead + Unpin) {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(read @ 1..) = output.read(&mut buffer).await {
            // On a full disk log lines are lost; the process must not block.
            let _ = self.write(buffer.get(..read).unwrap_or_default());
        }
    }

    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut open = self.0.lock();
        if open.size > MAX_SIZE {
            fs::rename(&open.path, open.path.with_extension("log.1"))?;
            open.file = File::options().create(true).append(true).open(&open.path)?;
            open.size = 0;
        }
        open.size += u64::try_from(bytes.len()).unwrap_or_default();
        open.file.write_all(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_files_stay_below_twice_the_maximum_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        let log = Log::open(path.clone()).unwrap();
        let line = vec![b'x'; 1 << 20];
        for _ in 0..50 {
            log.write(&line).unwrap();
        }
        let size = |path: PathBuf| fs::metadata(path).unwrap().len();
        assert!(
            size(path.clone()) + size(path.with_extension("log.1")) <= 2 * (MAX_SIZE + (1 << 20))
        );
    }
}
