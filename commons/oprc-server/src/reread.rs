//! A value that is made of files and made again when they change.

use std::{
    fs::{File, metadata},
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use crate::Error;
use parking_lot::Mutex;

/// How often files are looked at, at most.
#[cfg(not(test))]
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);
#[cfg(test)]
pub(crate) const INTERVAL: Duration = Duration::ZERO;

/// No file that is read here needs more.
const MAX_BYTES: u64 = 1 << 20;

/// A value that is made of files and made again when they change.
pub(crate) struct Reread<T> {
    files: Vec<PathBuf>,
    load: Box<dyn Fn() -> Result<T, Error> + Send + Sync>,
    interval: Duration,
    state: Mutex<State<T>>,
}

struct State<T> {
    value: Arc<T>,
    /// The files the value is made of.
    made_of: Vec<Option<Stamp>>,
    /// The files that no value could be made of, so that it is said once.
    refused: Option<Vec<Option<Stamp>>>,
    looked: Instant,
}

/// What changes with a file. The inode tells files apart that were renamed into one place.
#[derive(PartialEq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    inode: u64,
}

impl<T> Reread<T> {
    pub(crate) fn new(
        files: Vec<PathBuf>,
        interval: Duration,
        load: impl Fn() -> Result<T, Error> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        // Before the files are read: one that changes meanwhile is then read again.
        let made_of = stamps(&files);
        let state =
            State { value: Arc::new(load()?), made_of, refused: None, looked: Instant::now() };
        Ok(Self { files, load: Box::new(load), interval, state: Mutex::new(state) })
    }

    /// The value of the newest files that were good.
    ///
    /// The files are small and read by at most one thread in an interval, so this may block a
    /// thread of the runtime for that long.
    pub(crate) fn current(&self) -> Arc<T> {
        let mut state = self.state.lock();
        if state.looked.elapsed() >= self.interval {
            self.look(&mut state);
            state.looked = Instant::now();
        }
        state.value.clone()
    }

    /// Files that are refused are tried again each time: half of a rotation may have been seen, or
    /// the process may have been short of file descriptors.
    fn look(&self, state: &mut State<T>) {
        let found = stamps(&self.files);
        if found == state.made_of {
            state.refused = None;
            return;
        }
        match (self.load)() {
            Ok(value) => {
                tracing::info!(files = ?self.files, "Read changed files");
                state.value = Arc::new(value);
                state.made_of = found;
                state.refused = None;
            }
            Err(error) => {
                let found = Some(found);
                if state.refused != found {
                    tracing::warn!(%error, "Keeping what was read before");
                    state.refused = found;
                }
            }
        }
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Option<Stamp>> {
    let stamp = |file: &PathBuf| {
        let found = metadata(file).ok()?;
        Some(Stamp { modified: found.modified().ok(), bytes: found.len(), inode: found.ino() })
    };
    files.iter().map(stamp).collect()
}

/// What is in a file, which must not be large.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let mut content = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut content));
    match read {
        Err(error) => Err(Error::Read { path: path.to_owned(), error }),
        Ok(bytes) if u64::try_from(bytes).is_ok_and(|bytes| bytes <= MAX_BYTES) => Ok(content),
        Ok(_) => {
            let reason = format!("larger than {MAX_BYTES} bytes");
            Err(Error::File { path: path.to_owned(), reason })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn content_of(path: &Path, interval: Duration) -> Result<Reread<Vec<u8>>, Error> {
        let file = path.to_owned();
        Reread::new(vec![path.to_owned()], interval, move || read(&file))
    }

    #[test]
    fn is_not_looked_at_before_the_interval_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        let seldom = content_of(&path, Duration::from_hours(1)).unwrap();
        let always = content_of(&path, Duration::ZERO).unwrap();
        fs::write(&path, "newer").unwrap();
        assert_eq!(*seldom.current(), b"old");
        assert_eq!(*always.current(), b"newer");
    }

    #[test]
    fn a_file_that_is_gone_or_too_large_keeps_the_old_value() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        let value = content_of(&path, Duration::ZERO).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(*value.current(), b"old");
        fs::write(&path, vec![b'x'; (1 << 20) + 1]).unwrap();
        assert_eq!(*value.current(), b"old");
        fs::write(&path, vec![b'x'; 1 << 20]).unwrap();
        assert_eq!(value.current().len(), 1 << 20);
    }
}
