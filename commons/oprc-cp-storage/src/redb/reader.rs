//! Reads of single entries. Those of concurrent callers are combined, because starting a thread and a
//! snapshot for each takes longer than most reads.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    task::spawn_blocking,
};

use super::{Shared, closed, read};
use crate::{Entry, Result};

/// Threads that read at once. A slow disk serves several requests faster than one after the other.
const MAX_READERS: u32 = 8;
/// Bounds how long a caller waits for those before it.
const MAX_BATCH: usize = 32;

type Entries = Vec<Option<Entry>>;

struct Job {
    keys: Vec<String>,
    reply: oneshot::Sender<Result<Entries>>,
}

pub(super) struct Readers {
    waiting: Mutex<Vec<Job>>,
    /// One for each reader that runs. Taken and returned under the lock of `waiting`, so that no job is
    /// left without a reader.
    permits: Arc<Semaphore>,
}

impl Default for Readers {
    fn default() -> Self {
        let permits = Arc::new(Semaphore::new(MAX_READERS as usize));
        Self { waiting: Mutex::default(), permits }
    }
}

impl Readers {
    /// Reads the entries in one snapshot, which is taken after this call.
    pub(super) async fn get(&self, shared: &Arc<Shared>, keys: Vec<String>) -> Result<Entries> {
        let (reply, result) = oneshot::channel();
        {
            let mut waiting = self.waiting.lock();
            if self.permits.is_closed() {
                return Err(closed());
            }
            waiting.push(Job { keys, reply });
            let running = MAX_READERS as usize - self.permits.available_permits();
            // A reader that runs takes the next jobs soon.
            if waiting.len() > running
                && let Ok(permit) = self.permits.clone().try_acquire_owned()
            {
                let shared = shared.clone();
                spawn_blocking(move || shared.readers.run(&shared, permit));
            }
        }
        result.await.map_err(|_| closed())?
    }

    /// Reads until no job waits.
    fn run(&self, shared: &Shared, permit: OwnedSemaphorePermit) {
        loop {
            let batch = {
                let mut waiting = self.waiting.lock();
                let count = waiting.len().min(MAX_BATCH);
                let batch: Vec<_> = waiting.drain(..count).collect();
                if batch.is_empty() {
                    drop(permit);
                    return;
                }
                batch
            };
            answer(shared, batch);
        }
    }

    /// Waits for reads in progress; later ones fail.
    pub(super) async fn close(&self) {
        let permits = self.permits.acquire_many(MAX_READERS).await;
        self.permits.close();
        drop(permits);
        // Their callers get an error.
        self.waiting.lock().clear();
    }
}

fn answer(shared: &Shared, batch: Vec<Job>) {
    // The callers of the others have given up.
    let batch = batch.into_iter().filter(|job| !job.reply.is_closed());
    let (keys, replies): (Vec<_>, Vec<_>) = batch.map(|job| (job.keys, job.reply)).unzip();
    let results = shared.file.database(&shared.history).and_then(|database| {
        read::get_many(&database, keys).map_err(|error| shared.file.failed(&database, error))
    });
    match results {
        Ok(results) => {
            for (reply, entries) in replies.into_iter().zip(results) {
                let _ = reply.send(Ok(entries));
            }
        }
        Err(error) => {
            for reply in replies {
                let _ = reply.send(Err(error.clone()));
            }
        }
    }
}
