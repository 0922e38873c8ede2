//! The database file, which is reopened after an I/O error.

use std::{
    fs::{OpenOptions, rename},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use redb::{Builder, Database, ReadableDatabase as _};

use super::{
    RedbOptions,
    lock::Lock,
    tables::{ABOUT, ENTRIES, FORMAT, FORMAT_NUMBER, revision},
};
use crate::{Error, Result, Revision, history::History};

type Opener = Box<dyn Fn(&Path) -> Result<Database, redb::Error> + Send + Sync>;

pub(super) struct File {
    path: PathBuf,
    open: Opener,
    state: Mutex<State>,
}

/// The fields are dropped in this order: the lock is released after the database is closed.
#[derive(Default)]
struct State {
    /// `None` if it must be reopened: redb rejects all calls after an I/O error.
    database: Option<Arc<Database>>,
    /// `None` once the file is closed.
    lock: Option<Lock>,
}

impl File {
    pub(super) fn open(options: &RedbOptions) -> Result<Self> {
        let cache_bytes = options.cache_bytes;
        let open = Box::new(move |path: &Path| create(path, cache_bytes));
        Self::with_opener(options.path.clone(), &options.holder, open)
    }

    pub(super) fn with_opener(path: PathBuf, holder: &str, open: Opener) -> Result<Self> {
        let lock = Some(Lock::take(&path, holder)?);
        Ok(Self { path, open, state: Mutex::new(State { database: None, lock }) })
    }

    /// The database. Blocks while it is reopened, which also resets the history.
    pub(super) fn database(&self, history: &History) -> Result<Arc<Database>> {
        let mut state = self.state.lock();
        if let Some(database) = &state.database {
            return Ok(database.clone());
        }
        if state.lock.is_none() {
            return Err(super::closed());
        }
        let opened = (self.open)(&self.path);
        let opened = opened.and_then(|database| Ok((prepare(&database)?, database)));
        let ((format, revision), database) = opened.map_err(|error| self.describe(error))?;
        if format != FORMAT_NUMBER {
            return Err(Error::corrupt(format!(
                "{} has format {format}, but this program supports format {FORMAT_NUMBER}",
                self.path.display(),
            )));
        }
        history.reset(revision);
        Ok(state.database.insert(Arc::new(database)).clone())
    }

    /// Converts an error of the database, and marks the file for reopening after an I/O error.
    pub(super) fn failed(&self, database: &Arc<Database>, error: redb::Error) -> Error {
        if matches!(error, redb::Error::Io(_) | redb::Error::PreviousIo) {
            let open = &mut self.state.lock().database;
            if open.take_if(|open| Arc::ptr_eq(open, database)).is_some() {
                tracing::error!(%error, path = %self.path.display(), "I/O error in the store, reopening the file");
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
        *self.state.lock() = State::default();
    }
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
        let unfinished = path.with_added_extension("new");
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

/// Creates the tables of a new file. Returns the file's format and the revision of the store.
fn prepare(database: &Database) -> Result<(u64, Revision), redb::Error> {
    let read = database.begin_read()?;
    let format = match read.open_table(ABOUT) {
        Ok(about) => about.get(FORMAT)?.map(|format| format.value()),
        Err(redb::TableError::TableDoesNotExist(_)) => None,
        Err(error) => return Err(error.into()),
    };
    if let Some(format) = format {
        let revision = revision(&read.open_table(ABOUT)?)?;
        if format == FORMAT_NUMBER {
            read.open_table(ENTRIES)?;
        }
        return Ok((format, revision));
    }
    let write = database.begin_write()?;
    write.open_table(ENTRIES)?;
    write.open_table(ABOUT)?.insert(FORMAT, FORMAT_NUMBER)?;
    write.commit()?;
    Ok((FORMAT_NUMBER, Revision(0)))
}
