use std::{
    fmt,
    fs::{File, metadata},
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;

use crate::Error;

/// The shortest time between two checks of the files.
#[cfg(not(test))]
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(1);
#[cfg(test)]
pub(crate) const CHECK_INTERVAL: Duration = Duration::ZERO;

/// Certificate and token files are far smaller.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A value that is loaded from files, and loaded again when they change.
pub(crate) struct Reloaded<T> {
    files: Vec<PathBuf>,
    load: Box<dyn Fn() -> Result<T, Error> + Send + Sync>,
    interval: Duration,
    state: Mutex<State<T>>,
}

struct State<T> {
    value: Arc<T>,
    /// The file versions that the value was loaded from.
    loaded: Vec<Option<FileVersion>>,
    /// The file versions that failed to load, so that each failure is logged once.
    failed: Option<Vec<Option<FileVersion>>>,
    checked: Instant,
}

/// Modification time, size, and inode, which distinguishes files that were renamed to the same path.
type FileVersion = (Option<SystemTime>, u64, u64);

impl<T> Reloaded<T> {
    pub(crate) fn new(
        files: Vec<PathBuf>,
        interval: Duration,
        load: impl Fn() -> Result<T, Error> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        // Before the files are read: a file that changes meanwhile is then loaded again.
        let loaded = versions(&files);
        let state =
            State { value: Arc::new(load()?), loaded, failed: None, checked: Instant::now() };
        Ok(Self { files, load: Box::new(load), interval, state: Mutex::new(state) })
    }

    /// The value of the newest files that loaded without an error.
    ///
    /// This reads files on the caller's thread, which is acceptable because the files are small
    /// and checked at most once in an interval.
    pub(crate) fn current(&self) -> Arc<T> {
        let mut state = self.state.lock();
        if state.checked.elapsed() >= self.interval {
            self.check(&mut state);
            state.checked = Instant::now();
        }
        state.value.clone()
    }

    /// Files that failed are tried again on each check: a rotation may have been half done, or the
    /// process short of file descriptors.
    fn check(&self, state: &mut State<T>) {
        let found = versions(&self.files);
        if found == state.loaded {
            state.failed = None;
            return;
        }
        match (self.load)() {
            Ok(value) => {
                tracing::info!(files = ?self.files, "reloaded changed files");
                state.value = Arc::new(value);
                state.loaded = found;
                state.failed = None;
            }
            Err(error) if state.failed.as_ref() != Some(&found) => {
                tracing::warn!(%error, "cannot reload changed files, keeping the previous content");
                state.failed = Some(found);
            }
            Err(_) => {}
        }
    }
}

/// The value may be secret.
impl<T> fmt::Debug for Reloaded<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Reloaded").field(&self.files).finish()
    }
}

fn versions(files: &[PathBuf]) -> Vec<Option<FileVersion>> {
    let version = |file: &PathBuf| {
        let found = metadata(file).ok()?;
        Some((found.modified().ok(), found.len(), found.ino()))
    };
    files.iter().map(version).collect()
}

/// Reads a file of at most [`MAX_FILE_BYTES`].
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let mut content = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content));
    let bytes = read.map_err(|error| Error::Read { path: path.to_owned(), error })?;
    if bytes as u64 > MAX_FILE_BYTES {
        return Err(Error::file(path, format!("larger than {MAX_FILE_BYTES} bytes")));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn content_of(path: &Path, interval: Duration) -> Result<Reloaded<Vec<u8>>, Error> {
        let file = path.to_owned();
        Reloaded::new(vec![path.to_owned()], interval, move || read(&file))
    }

    #[test]
    fn checks_files_once_per_interval() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        let hourly = content_of(&path, Duration::from_hours(1)).unwrap();
        let always = content_of(&path, Duration::ZERO).unwrap();
        fs::write(&path, "newer").unwrap();
        assert_eq!(*hourly.current(), b"old");
        assert_eq!(*always.current(), b"newer");
    }

    #[test]
    fn keeps_the_old_value_if_the_file_is_missing_or_too_large() {
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
