//! The writer thread, which commits transactions in batches.
//!
//! While a commit waits for the disk, further transactions queue. The next commit includes all of
//! them, one after the other, each seeing the changes of those before it. Replies are sent after
//! the commit, so that each transaction is durable.
//!
//! Callers that got replies together often write again at about the same time. The writer
//! therefore waits for a fraction of the last commit's duration until it has as many transactions
//! as in the last batch. A single caller waits for no other.

use std::time::{Duration, Instant};

use redb::{Database, Durability, ReadableTable as _, WriteTransaction};
use tokio::sync::{mpsc, oneshot};

use super::{
    Shared,
    tables::{self, ABOUT, ENTRIES, REVISION},
};
use crate::{Change, Commit, Error, Result, Revision, Transaction};

/// These bound the duration of a commit.
const MAX_BATCH_TRANSACTIONS: usize = 256;
const MAX_BATCH_BYTES: usize = 8 << 20;
const BATCH_POLL_INTERVAL: Duration = Duration::from_micros(20);

pub(super) struct Job {
    pub(super) transaction: Transaction,
    pub(super) reply: oneshot::Sender<Result<Revision>>,
}

/// Runs until the last sender is dropped, then closes the file.
pub(super) fn run(shared: &Shared, mut jobs: mpsc::Receiver<Job>) {
    let mut previous = PreviousBatch { jobs: 1, took: Duration::ZERO };
    while let Some(first) = jobs.blocking_recv() {
        let mut batch = gather(first, &mut jobs, previous);
        previous.jobs = batch.len();
        // The callers of these have given up.
        batch.retain(|job| !job.reply.is_closed());
        let started = Instant::now();
        write(shared, batch);
        previous.took = started.elapsed();
    }
    shared.file.close();
}

#[derive(Clone, Copy)]
struct PreviousBatch {
    jobs: usize,
    took: Duration,
}

/// Collects the next batch.
fn gather(first: Job, jobs: &mut mpsc::Receiver<Job>, previous: PreviousBatch) -> Vec<Job> {
    let started = Instant::now();
    let mut bytes = first.transaction.bytes();
    let mut batch = vec![first];
    while batch.len() < MAX_BATCH_TRANSACTIONS && bytes < MAX_BATCH_BYTES {
        match jobs.try_recv() {
            Ok(next) => {
                bytes += next.transaction.bytes();
                batch.push(next);
            }
            Err(_) if batch.len() < previous.jobs && started.elapsed() < previous.took / 4 => {
                std::thread::sleep(BATCH_POLL_INTERVAL);
            }
            Err(_) => break,
        }
    }
    batch
}

/// Commits a batch, then sends all replies.
fn write(shared: &Shared, batch: Vec<Job>) {
    let (transactions, replies): (Vec<_>, Vec<_>) =
        batch.into_iter().map(|job| (job.transaction, job.reply)).unzip();
    let results = attempt(shared, transactions)
        .unwrap_or_else(|error| replies.iter().map(|_| Err(error.clone())).collect());
    for (reply, result) in replies.into_iter().zip(results) {
        // Fails if the caller has given up.
        let _ = reply.send(result);
    }
}

fn attempt(shared: &Shared, transactions: Vec<Transaction>) -> Result<Vec<Result<Revision>>> {
    let database = shared.file.database(&shared.history)?;
    let unchanged = |error| shared.file.failed(&database, error);
    let Batch { write, results, commits } =
        apply(shared, &database, transactions).map_err(unchanged)?;
    if let Some(newest) = commits.last() {
        shared.history.announce(newest.revision);
        write.commit().map_err(|error| {
            let failure = shared.file.failed(&database, error.into());
            shared.history.end_watches();
            Error::unknown_outcome(failure)
        })?;
        for commit in commits {
            shared.history.publish(commit);
        }
    } else {
        write.abort().map_err(|error| unchanged(error.into()))?;
    }
    Ok(results)
}

/// A batch that is applied, but not committed.
struct Batch {
    write: WriteTransaction,
    results: Vec<Result<Revision>>,
    commits: Vec<Commit>,
}

fn apply(
    shared: &Shared,
    database: &Database,
    transactions: Vec<Transaction>,
) -> Result<Batch, redb::Error> {
    let mut write = database.begin_write()?;
    // The default, made explicit because durability depends on it.
    write.set_durability(Durability::Immediate)?;
    let (mut results, mut commits) = (Vec::with_capacity(transactions.len()), Vec::new());
    {
        let mut entries = write.open_table(ENTRIES)?;
        let mut about = write.open_table(ABOUT)?;
        let before = tables::revision(&about)?;
        let mut revision = before;
        for transaction in transactions {
            let holds = shared.owners.check(transaction.fence.as_ref()).and_then(|()| {
                transaction.check_versions(|key| match entries.get(key) {
                    Ok(found) => Ok(found.map(|found| Revision(found.value().0))),
                    Err(error) => Err(Error::unavailable(error)),
                })
            });
            if let Err(error) = holds {
                results.push(Err(error));
                continue;
            }
            let next = Revision(revision.0 + 1);
            let mut changes = Vec::with_capacity(transaction.changes.len());
            for change in transaction.changes {
                let changed = match &change {
                    Change::Put { key, value } => {
                        entries.insert(key.as_str(), (next.0, value.as_ref()))?;
                        true
                    }
                    Change::Delete { key } => entries.remove(key.as_str())?.is_some(),
                };
                if changed {
                    changes.push(change);
                }
            }
            if !changes.is_empty() {
                revision = next;
                commits.push(Commit { revision, changes });
            }
            results.push(Ok(revision));
        }
        if revision != before {
            about.insert(REVISION, revision.0)?;
        }
    }
    Ok(Batch { write, results, commits })
}
