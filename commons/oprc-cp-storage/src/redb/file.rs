//! The database file, which is reopened after an I/O error.

use std::{
    fs::{OpenOptions, rename},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};
use redb::{Builder, Database, ReadableDatabase as _};

use super::{
    RedbOptions,
    lock::Lock,
    tables::{ABOUT, ENTRIES, FORMAT, FORMAT_NUMBER, REVISION},
};
use crate::{Error, Result, Revision, history::History};

type Opener = Box<dyn Fn() -> Result<Database, redb::Error> + Send + Sync>;

pub(super) struct File {
    path: PathBuf,
    open: Opener,
    state: Mutex<State>,
}

enum State {
    Open(Arc<Database>, Lock),
    /// Must be reopened: redb rejects all calls after an I/O error.
    Failed(Lock),
    Closed,
}

impl File {
    pub(super) fn open(options: &RedbOptions) -> Result<Self> {
        let path = options.path.clone();
        let cache_bytes = options.cache_bytes;
        let file = path.clone();
        Self::with_opener(path, &options.holder, Box::new(move || create(&file, cache_bytes)))
    }

    pub(super) fn with_opener(path: PathBuf, holder: &str, open: Opener) -> Result<Self> {
        let lock = Lock::take(&path, holder)?;
        Ok(Self { path, open, state: Mutex::new(State::Failed(lock)) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The database. Blocks while it is reopened, which also resets the history.
    pub(super) fn database(&self, history: &History) -> Result<Arc<Database>> {
        let mut state = self.state();
        match &*state {
            State::Open(database, _) => return Ok(database.clone()),
            State::Closed => return Err(super::closed()),
            State::Failed(_) => {}
        }
        let opened = (self.open)().and_then(|database| Ok((prepare(&database)?, database)));
        let (about, database) = opened.map_err(|error| self.describe(error))?;
        if about.format != FORMAT_NUMBER {
            let reason = format!(
                "{} has format {}, but this program supports format {FORMAT_NUMBER}",
                self.path.display(),
                about.format
            );
            return Err(Error::Corrupt { reason });
        }
        history.reset(about.revision);
        let database = Arc::new(database);
        if let State::Failed(lock) = std::mem::replace(&mut *state, State::Closed) {
            *state = State::Open(database.clone(), lock);
        }
        Ok(database)
    }

    /// Converts an error of the database, and marks the file for reopening after an I/O error.
    pub(super) fn failed(&self, database: &Arc<Database>, error: redb::Error) -> Error {
        if matches!(error, redb::Error::Io(_) | redb::Error::PreviousIo) {
            let mut state = self.state();
            if matches!(&*state, State::Open(open, _) if Arc::ptr_eq(open, database)) {
                tracing::error!(%error, path = %self.path.display(), "I/O error in the store, reopening the file");
                if let State::Open(_, lock) = std::mem::replace(&mut *state, State::Closed) {
                    *state = State::Failed(lock);
                }
            }
        }
        self.describe(error)
    }

    fn describe(&self, error: redb::Error) -> Error {
        let reason = format!("{}: {error}", self.path.display());
        match error {
            redb::Error::Corrupted(_)
            | redb::Error::UpgradeRequired(_)
            | redb::Error::TableTypeMismatch { .. }
            | redb::Error::TypeDefinitionChanged { .. }
            | redb::Error::TableIsMultimap(_)
            | redb::Error::RepairAborted => Error::Corrupt { reason },
            redb::Error::Io(io) if io.kind() == std::io::ErrorKind::InvalidData => {
                Error::Corrupt { reason }
            }
            _ => Error::Unavailable { reason },
        }
    }

    /// Closes the file, then releases the lock.
    pub(super) fn close(&self) {
        let before = std::mem::replace(&mut *self.state(), State::Closed);
        if let State::Open(database, lock) = before {
            drop(database);
            drop(lock);
        }
    }
}

struct About {
    format: u64,
    revision: Revision,
}

/// A new file is renamed to its path once it is complete, so that a crash leaves no partial one.
fn create(path: &Path, cache_bytes: usize) -> Result<Database, redb::Error> {
    let open = |path: &Path, create: bool| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(create).truncate(create).mode(0o600);
        Ok::<_, redb::Error>(
            Builder::new().set_cache_size(cache_bytes).create_file(options.open(path)?)?,
        )
    };
    if !path.try_exists()? {
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(".new");
        let unfinished = PathBuf::from(unfinished);
        let database = open(&unfinished, true)?;
        prepare(&database)?;
        drop(database);
        rename(&unfinished, path)?;
        // Makes the rename durable.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        std::fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    open(path, false)
}

/// Creates the tables of a new file.
fn prepare(database: &Database) -> Result<About, redb::Error> {
    let read = database.begin_read()?;
    let format = match read.open_table(ABOUT) {
        Ok(about) => about.get(FORMAT)?.map(|format| format.value()),
        Err(redb::TableError::TableDoesNotExist(_)) => None,
        Err(error) => return Err(error.into()),
    };
    if let Some(format) = format {
        let revision = read.open_table(ABOUT)?.get(REVISION)?.map_or(0, |number| number.value());
        if format == FORMAT_NUMBER {
            read.open_table(ENTRIES)?;
        }
        return Ok(About { format, revision: Revision(revision) });
    }
    let write = database.begin_write()?;
    {
        write.open_table(ENTRIES)?;
        write.open_table(ABOUT)?.insert(FORMAT, FORMAT_NUMBER)?;
    }
    write.commit()?;
    Ok(About { format: FORMAT_NUMBER, revision: Revision(0) })
}
