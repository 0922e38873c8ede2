//! Ensures that only one process opens a file.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read as _, Seek as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use crate::{Error, Result};

/// The maximum that is read of the holder's note.
const MAX_NOTE_BYTES: u64 = 1024;

/// A file next to the store's that is locked while the store is open, and names the holder. The
/// kernel releases the lock when the process ends.
///
/// redb locks the store's own file, too, but not while it is reopened after an error.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    pub(super) fn take(store: &Path, holder: &str) -> Result<Self> {
        let path = store.with_added_extension("lock");
        let failed = |error| Error::unavailable(format!("{}: {error}", path.display()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = read_note(&mut file).unwrap_or_else(|| "another process".to_owned());
                return Err(Error::LeaseHeld { name: store.display().to_string(), holder });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let note = format!("{holder} (process {})\n", std::process::id());
        let mut write = || {
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(note.as_bytes())
        };
        write().map_err(failed)?;
        Ok(Self { _file: file })
    }
}

fn read_note(file: &mut File) -> Option<String> {
    let mut note = String::new();
    file.take(MAX_NOTE_BYTES).read_to_string(&mut note).ok()?;
    let note = note.trim();
    (!note.is_empty()).then(|| note.to_owned())
}
