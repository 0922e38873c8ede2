//! File operations whose errors name the path.

use std::{
    fs::{self, File},
    io::{self, Read, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use crate::{Error, Result, progress::Step};

pub(crate) fn create_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(Error::path("creating", folder))
}

/// Deletes a folder if it exists.
pub(crate) fn remove_folder(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::path("deleting", folder)(error))
        }
        _ => Ok(()),
    }
}

pub(crate) fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).map_err(Error::path("reading", file))
}

pub(crate) fn write(file: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    fs::write(file, content).map_err(Error::path("writing", file))
}

/// Writes a file that only its owner can read.
pub(crate) fn write_private(file: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(file).and_then(|mut open| open.write_all(content.as_ref()));
    written.map_err(Error::path("writing", file))
}

/// Replaces a file atomically. The draft has the extension `new`.
pub(crate) fn write_atomically(file: &Path, content: &[u8]) -> io::Result<()> {
    let draft = file.with_added_extension("new");
    fs::write(&draft, content)?;
    fs::rename(draft, file)
}

/// All files below a folder, sorted; symbolic links are not followed.
pub(crate) fn below(folder: &Path) -> Result<Vec<PathBuf>> {
    let paths = fs::read_dir(folder)
        .and_then(|items| items.map(|item| Ok(item?.path())).collect::<io::Result<Vec<_>>>())
        .map_err(Error::path("reading", folder))?;
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() && !path.is_symlink() {
            files.extend(below(&path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The digest of all bytes that a reader returns, in hexadecimal.
pub(crate) fn sha256(mut content: impl Read) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match content.read(&mut buffer)? {
            0 => return Ok(hex::encode(hash.finalize())),
            read => hash.update(buffer.get(..read).unwrap_or_default()),
        }
    }
}

/// Takes an exclusive lock on a file, with progress output if it must wait. Dropping the file releases it.
pub(crate) fn wait_for_lock(file: &Path, what: &str) -> Result<File> {
    let lock = File::create(file).map_err(Error::path("locking", file))?;
    if lock.try_lock().is_err() {
        let step = Step::begin(format!("Waiting for another process that is using {what}"));
        lock.lock().map_err(Error::path("locking", file))?;
        step.done();
    }
    Ok(lock)
}
