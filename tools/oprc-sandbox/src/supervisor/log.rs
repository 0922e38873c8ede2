//! Log files of bounded size: when one is full it becomes the older half.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::PathBuf,
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Where a log begins anew.
const LIMIT: u64 = 16 << 20;

/// The log of one component.
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

    /// Copies everything that a process writes, until it closes its end.
    pub(super) async fn follow(self, mut output: impl AsyncRead + Unpin) {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(read @ 1..) = output.read(&mut buffer).await {
            // A full disk loses lines of a log; the process must not stop for that.
            let _ = self.write(buffer.get(..read).unwrap_or_default());
        }
    }

    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut open = self.0.lock();
        if open.size > LIMIT {
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
    fn a_log_never_grows_past_twice_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        let log = Log::open(path.clone()).unwrap();
        let line = vec![b'x'; 1 << 20];
        for _ in 0..50 {
            log.write(&line).unwrap();
        }
        let size = |path: PathBuf| fs::metadata(path).unwrap().len();
        assert!(size(path.clone()) + size(path.with_extension("log.1")) <= 2 * (LIMIT + (1 << 20)));
    }
}
