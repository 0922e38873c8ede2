//! The redb back end: a store in a file.
//!
//! Reads run on a pool of threads; those of single entries are combined: see [`reader`]. Writes queue
//! for one thread, which commits all queued ones together, because syncing the disk takes most of the
//! time: see [`writer`].

mod file;
mod lock;
mod read;
mod reader;
mod tables;
mod writer;

#[cfg(test)]
mod tests;

use std::{
    path::PathBuf,
    sync::Arc,
    thread::{Builder, JoinHandle},
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    task::spawn_blocking,
    time::{error::Elapsed, timeout},
};

use crate::{
    Backend, DEFAULT_DEADLINE, Entry, Error, Lease, Page, Result, Revision, Snapshot, Transaction,
    Watch, history::History, local_owners::LocalOwners,
};
use file::File;
use reader::Readers;
use writer::Job;

/// Bounds the threads that a hanging disk can block.
const MAX_CONCURRENT_READS: u32 = 32;
/// Bounds the transactions that wait for the writer.
const MAX_QUEUED_WRITES: usize = 1024;

#[derive(Debug, Clone)]
pub struct RedbOptions {
    /// Created if missing. A lock file next to it names the process that has it open.
    pub path: PathBuf,
    /// Shown to other processes that try to open the file.
    pub holder: String,
    pub cache_bytes: usize,
    /// Of each call.
    pub deadline: Duration,
}

impl RedbOptions {
    pub fn new(path: impl Into<PathBuf>, holder: impl Into<String>) -> Self {
        let cache_bytes = 64 << 20;
        Self { path: path.into(), holder: holder.into(), cache_bytes, deadline: DEFAULT_DEADLINE }
    }
}

pub(crate) struct Redb {
    shared: Arc<Shared>,
    /// `None` once the store is closed. The writer ends when the sender and its clones are dropped.
    writer: Mutex<Option<(mpsc::Sender<Job>, JoinHandle<()>)>>,
    deadline: Duration,
}

struct Shared {
    file: File,
    history: History,
    owners: LocalOwners,
    reads: Arc<Semaphore>,
    readers: Readers,
}

impl Redb {
    pub(crate) async fn open(options: RedbOptions) -> Result<Self> {
        crate::key::check_identity(&options.holder)?;
        let deadline = options.deadline;
        // No deadline: after a crash redb checks the whole file.
        spawn_blocking(move || Self::start(File::open(&options)?, deadline))
            .await
            .map_err(Error::unavailable)?
    }

    fn start(file: File, deadline: Duration) -> Result<Self> {
        let reads = Arc::new(Semaphore::new(MAX_CONCURRENT_READS as usize));
        let (history, owners) = (History::default(), LocalOwners::default());
        let shared = Arc::new(Shared { file, history, owners, reads, readers: Readers::default() });
        shared.file.database(&shared.history)?;
        let (jobs, waiting) = mpsc::channel(MAX_QUEUED_WRITES);
        let own = shared.clone();
        let thread = Builder::new().name("store".to_owned());
        let thread = thread.spawn(move || writer::run(&own, waiting)).map_err(|error| {
            Error::unavailable(format!("cannot start the writer thread: {error}"))
        })?;
        Ok(Self { shared, writer: Mutex::new(Some((jobs, thread))), deadline })
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&redb::Database) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T> {
        let work = async {
            let permit = self.shared.reads.clone().acquire_owned().await;
            let permit = permit.map_err(|_| closed())?;
            let shared = self.shared.clone();
            let work = move || {
                let _permit = permit;
                let database = shared.file.database(&shared.history)?;
                read(&database).map_err(|error| shared.file.failed(&database, error))
            };
            spawn_blocking(work).await.map_err(Error::unavailable)?
        };
        timeout(self.deadline, work).await.map_err(late)?
    }
}

#[async_trait]
impl Backend for Redb {
    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        let entries = self.get_many(&[key.to_owned()]).await?;
        Ok(entries.into_iter().next().flatten())
    }

    async fn get_many(&self, keys: &[String]) -> Result<Vec<Option<Entry>>> {
        let read = self.shared.readers.get(&self.shared, keys.to_vec());
        timeout(self.deadline, read).await.map_err(late)?
    }

    async fn range(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        self.read(move |database| read::range(database, &prefix, after.as_deref(), limit)).await
    }

    async fn count(&self, prefix: &str) -> Result<u64> {
        let prefix = prefix.to_owned();
        self.read(move |database| read::count(database, &prefix)).await
    }

    async fn snapshot(&self) -> Result<Snapshot> {
        let snapshot = self.read(read::RedbSnapshot::open).await?;
        Ok(Snapshot::new(snapshot.revision, snapshot))
    }

    async fn commit(&self, transaction: Transaction) -> Result<Revision> {
        let (reply, result) = oneshot::channel();
        let jobs = self.writer.lock().as_ref().map(|(jobs, _)| jobs.clone()).ok_or_else(closed)?;
        let queued = timeout(self.deadline, jobs.send(Job { transaction, reply })).await;
        // The writer ends with the last sender: a caller that stops polling must not delay it.
        drop(jobs);
        queued
            .map_err(|_| Error::unavailable("too many transactions are queued"))?
            .map_err(|_| closed())?;
        match timeout(self.deadline, result).await {
            Ok(Ok(result)) => result,
            // The writer sends all replies unless it panics, perhaps after the commit.
            Ok(Err(_)) => Err(Error::unknown_outcome("the writer ended without a reply")),
            Err(_) => Err(Error::unknown_outcome("writing the file timed out")),
        }
    }

    async fn watch(&self, prefix: &str, after: Option<Revision>) -> Result<Watch> {
        self.shared.history.watch(prefix, after)
    }

    async fn acquire_lease(&self, name: &str, identity: &str) -> Result<Lease> {
        // No other process has the file open.
        self.shared.owners.acquire(name, identity).map(Lease::in_process)
    }

    async fn close(&self) {
        self.shared.readers.close().await;
        // Reads in progress keep the file open. An error means that the store is already closed.
        let permits = self.shared.reads.acquire_many(MAX_CONCURRENT_READS).await;
        self.shared.reads.close();
        drop(permits);
        let writer = self.writer.lock().take();
        if let Some((jobs, thread)) = writer {
            drop(jobs);
            let shared = self.shared.clone();
            let join = move || {
                // A writer that panicked has not closed the file.
                let _ = thread.join();
                shared.file.close();
            };
            let _ = spawn_blocking(join).await;
        }
    }
}

fn late(_: Elapsed) -> Error {
    Error::unavailable("reading the file timed out")
}

fn closed() -> Error {
    Error::unavailable("the store is closed")
}
