//! A store in a file.
//!
//! Reads go to a pool of threads; writes queue for one thread, which makes all that wait into one
//! transaction of the file, since it is the disk that takes the time: see [`writer`].

mod file;
mod lock;
mod read;
mod tables;
mod writer;

#[cfg(test)]
mod tests;

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    task::spawn_blocking,
    time::timeout,
};

use crate::{
    Backend, DEADLINE, Entry, Error, Ownership, Page, Result, Revision, Transaction, Watch,
    history::History, owners::Owners,
};
use file::File;
use writer::Job;

/// How many reads may be under way: a disk that hangs must not pile up threads.
const MAX_READS: u32 = 32;
/// How many transactions may wait for the writer.
const MAX_WAITING: usize = 1024;

/// Where the file is, and who opens it.
#[derive(Debug, Clone)]
pub struct RedbOptions {
    /// The file, which is made if there is none. A second one beside it says who has it open.
    pub path: PathBuf,
    /// What another process is told that wants to open it, too.
    pub holder: String,
    /// How much of the file is kept in memory.
    pub cache_bytes: usize,
    /// How long a call may take.
    pub deadline: Duration,
}

impl RedbOptions {
    /// With what suits most.
    pub fn new(path: impl Into<PathBuf>, holder: impl Into<String>) -> Self {
        let cache_bytes = 64 << 20;
        Self { path: path.into(), holder: holder.into(), cache_bytes, deadline: DEADLINE }
    }
}

/// A store in a file.
pub(crate) struct Redb {
    shared: Arc<Shared>,
    jobs: mpsc::Sender<Job>,
    deadline: Duration,
}

/// What readers and the writer use.
struct Shared {
    file: File,
    history: History,
    owners: Owners,
    reads: Arc<Semaphore>,
}

impl Redb {
    pub(crate) async fn open(options: RedbOptions) -> Result<Self> {
        crate::key::check_identity(&options.holder)?;
        let deadline = options.deadline;
        // No deadline: after a crash the whole file is checked, and that takes what it takes.
        spawn_blocking(move || Self::start(File::open(&options)?, deadline))
            .await
            .map_err(Error::unavailable)?
    }

    fn start(file: File, deadline: Duration) -> Result<Self> {
        let reads = Arc::new(Semaphore::new(MAX_READS as usize));
        let (history, owners) = (History::default(), Owners::default());
        let shared = Arc::new(Shared { file, history, owners, reads });
        shared.file.database(&shared.history)?;
        let (jobs, waiting) = mpsc::channel(MAX_WAITING);
        let own = shared.clone();
        std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || writer::run(&own, waiting))
            .map_err(|error| Error::unavailable(format!("no thread for the writer: {error}")))?;
        Ok(Self { shared, jobs, deadline })
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&redb::Database) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T> {
        let late = |_| Error::unavailable("the disk doesn't answer in time");
        let work = async {
            let turn = self.shared.reads.clone().acquire_owned().await;
            let turn = turn.map_err(|_| closed())?;
            let shared = self.shared.clone();
            let work = move || {
                let _turn = turn;
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
        let key = key.to_owned();
        self.read(|database| read::get(database, key)).await
    }

    async fn range(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        self.read(move |database| read::range(database, &prefix, after.as_deref(), limit)).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Revision> {
        let (reply, answer) = oneshot::channel();
        let queued = timeout(self.deadline, async {
            self.jobs.send(Job::new(transaction, reply)).await.map_err(|_| closed())
        });
        queued.await.map_err(|_| Error::unavailable("too many transactions wait"))??;
        match timeout(self.deadline, answer).await {
            Ok(Ok(answer)) => answer,
            // The writer drops what it will not do only when it ends.
            Ok(Err(_)) => Err(closed()),
            Err(_) => Err(Error::unknown("the disk doesn't answer in time")),
        }
    }

    async fn watch(&self, prefix: &str, after: Option<Revision>) -> Result<Watch> {
        self.shared.history.watch(prefix, after)
    }

    async fn own(&self, name: &str, identity: &str) -> Result<Ownership> {
        // No other process can have the file open.
        self.shared.owners.own(name, identity)
    }

    async fn close(&self) {
        let (done, ended) = oneshot::channel();
        if self.jobs.send(Job::last(done)).await.is_ok() {
            let _ = ended.await;
        }
        // Reads that are under way hold the file open.
        let _ = self.shared.reads.acquire_many(MAX_READS).await;
        self.shared.reads.close();
        let shared = self.shared.clone();
        let _ = spawn_blocking(move || shared.file.close()).await;
    }
}

fn closed() -> Error {
    Error::unavailable("it is closed")
}
