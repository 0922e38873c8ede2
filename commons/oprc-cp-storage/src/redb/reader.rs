//! Reads of single entries. Those of concurrent callers are combined, because starting a thread and a
//! snapshot for each takes longer than most reads.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    task::spawn_blocking,
};

use super::{Shared, closed, read};
use crate::{Entry, Error, Result};

/// Threads that read at once. A slow disk serves several requests faster than one after the other.
const MAX_READERS: u32 = 8;
/// Bounds how long a caller waits for those before it.
const MAX_BATCH: usize = 32;
/// Bounds the reads that wait for a hanging disk.
const MAX_WAITING: usize = 1024;

type Entries = Vec<Option<Entry>>;

struct Job {
    keys: Vec<String>,
    reply: oneshot::Sender<Result<Entries>>,
}

#[derive(Default)]
struct Queue {
    jobs: Vec<Job>,
    is_closed: bool,
}

impl Queue {
    fn push(&mut self, job: Job) -> Result<()> {
        if self.is_closed {
            return Err(closed());
        }
        if self.jobs.len() >= MAX_WAITING {
            // The callers of the others have given up.
            self.jobs.retain(|it| !it.reply.is_closed());
        }
        if self.jobs.len() >= MAX_WAITING {
            return Err(Error::unavailable("too many reads are queued"));
        }
        self.jobs.push(job);
        Ok(())
    }
}

pub(super) struct Readers {
    queue: Mutex<Queue>,
    /// One for each reader that runs. Taken and returned under the lock of the queue, so that no job is
    /// left without a reader.
    permits: Arc<Semaphore>,
}

impl Default for Readers {
    fn default() -> Self {
        let permits = Arc::new(Semaphore::new(MAX_READERS as usize));
        Self { queue: Mutex::default(), permits }
    }
}

impl Readers {
    /// Reads the entries in one snapshot, which is taken after this call.
    pub(super) async fn get(&self, shared: &Arc<Shared>, keys: Vec<String>) -> Result<Entries> {
        let (reply, result) = oneshot::channel();
        {
            let mut queue = self.queue.lock();
            queue.push(Job { keys, reply })?;
            let running = MAX_READERS as usize - self.permits.available_permits();
            // A reader that runs takes the next jobs soon.
            if queue.jobs.len() > running
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
                let mut queue = self.queue.lock();
                let count = queue.jobs.len().min(MAX_BATCH);
                let batch: Vec<_> = queue.jobs.drain(..count).collect();
                if batch.is_empty() {
                    drop(permit);
                    return;
                }
                batch
            };
            answer(shared, batch);
        }
    }

    /// Waits for reads that have begun; later ones fail.
    pub(super) async fn close(&self) {
        self.queue.lock().is_closed = true;
        // The readers end when no job waits. The permits are never closed.
        let _ = self.permits.acquire_many(MAX_READERS).await;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> (Job, oneshot::Receiver<Result<Entries>>) {
        let (reply, result) = oneshot::channel();
        (Job { keys: Vec::new(), reply }, result)
    }

    #[test]
    fn reads_that_wait_are_bounded() {
        let mut queue = Queue::default();
        let mut waiting = Vec::new();
        for _ in 0..MAX_WAITING {
            let (job, result) = job();
            queue.push(job).unwrap();
            waiting.push(result);
        }
        assert!(matches!(queue.push(job().0), Err(Error::Unavailable { .. })));
        waiting.truncate(MAX_WAITING - 1);
        queue.push(job().0).unwrap();
        queue.is_closed = true;
        assert!(queue.push(job().0).is_err());
    }
}
