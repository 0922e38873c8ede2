//! The one thread that writes.
//!
//! A commit of the file waits for the disk, and while it does, further transactions queue. All that
//! wait then go into the next commit together, one after the other, each seeing what those before
//! it did. None is answered before the disk has all of them: so each is as durable as if it had
//! been written alone, at a fraction of the price.
//!
//! Those that are answered together often ask for more together, only not at the very same moment:
//! the writer waits for as many as it had before, for a part of the time that a commit takes. So a
//! lone one waits for nobody.

use std::time::{Duration, Instant};

use redb::{Database, Durability, ReadableTable as _};
use tokio::sync::{mpsc, oneshot};

use super::{
    Shared,
    tables::{ABOUT, ENTRIES, REVISION},
};
use crate::{Change, Commit, Error, Result, Revision, Transaction};

/// So much goes into one commit of the file at most, to bound how long it takes.
const MAX_BATCH: usize = 256;
const MAX_BATCH_BYTES: usize = 8 << 20;
/// What one who waits for others waits at a time.
const MOMENT: Duration = Duration::from_micros(20);

/// A transaction to be made.
pub(super) struct Job {
    pub(super) transaction: Transaction,
    pub(super) reply: oneshot::Sender<Result<Revision>>,
    last: bool,
}

impl Job {
    pub(super) fn new(transaction: Transaction, reply: oneshot::Sender<Result<Revision>>) -> Self {
        Self { transaction, reply, last: false }
    }

    /// Nothing is written after it.
    pub(super) fn last(reply: oneshot::Sender<Result<Revision>>) -> Self {
        Self { transaction: Transaction::new(), reply, last: true }
    }
}

/// Writes until there is nobody left who could ask for it.
pub(super) fn run(shared: &Shared, mut jobs: mpsc::Receiver<Job>) {
    let mut before = Before { jobs: 1, took: Duration::ZERO };
    while let Some(first) = jobs.blocking_recv() {
        let mut batch = gather(first, &mut jobs, before);
        let last = batch.iter().any(|job| job.last);
        before.jobs = batch.len();
        // Nobody waits for these any more.
        batch.retain(|job| !job.reply.is_closed());
        let begun = Instant::now();
        write(shared, batch);
        before.took = begun.elapsed();
        if last {
            return;
        }
    }
    shared.file.close();
}

/// How the last commit was.
#[derive(Clone, Copy)]
struct Before {
    jobs: usize,
    took: Duration,
}

/// What goes into the next commit.
fn gather(first: Job, jobs: &mut mpsc::Receiver<Job>, before: Before) -> Vec<Job> {
    let begun = Instant::now();
    let mut bytes = first.transaction.bytes();
    let mut batch = vec![first];
    while batch.len() < MAX_BATCH
        && bytes < MAX_BATCH_BYTES
        && batch.last().is_some_and(|job| !job.last)
    {
        match jobs.try_recv() {
            Ok(next) => {
                bytes += next.transaction.bytes();
                batch.push(next);
            }
            Err(_) if batch.len() < before.jobs && begun.elapsed() < before.took / 4 => {
                std::thread::sleep(MOMENT);
            }
            Err(_) => break,
        }
    }
    batch
}

/// Makes transactions in one commit of the file, then answers all of them.
fn write(shared: &Shared, batch: Vec<Job>) {
    let (transactions, replies): (Vec<_>, Vec<_>) =
        batch.into_iter().map(|job| (job.transaction, job.reply)).unzip();
    let answers = attempt(shared, transactions);
    for (index, reply) in replies.into_iter().enumerate() {
        let answer = match &answers {
            Ok(answers) => answers.get(index).cloned().unwrap_or_else(|| Err(super::closed())),
            Err(error) => Err(error.clone()),
        };
        // An error: whoever asked has given up meanwhile.
        let _ = reply.send(answer);
    }
}

fn attempt(shared: &Shared, transactions: Vec<Transaction>) -> Result<Vec<Result<Revision>>> {
    let database = shared.file.database(&shared.history)?;
    let unchanged = |error| shared.file.failed(&database, error);
    let batch = apply(shared, &database, transactions).map_err(unchanged)?;
    if let Some(newest) = batch.commits.last() {
        shared.history.expect(newest.revision);
        batch.write.commit().map_err(|error| {
            let failure = shared.file.failed(&database, error.into());
            shared.history.break_off();
            Error::unknown(failure)
        })?;
        batch.commits.into_iter().for_each(|commit| shared.history.tell(commit));
    } else {
        batch.write.abort().map_err(|error| unchanged(error.into()))?;
    }
    Ok(batch.answers)
}

/// What is written and only needs to be committed.
struct Batch {
    write: redb::WriteTransaction,
    answers: Vec<Result<Revision>>,
    commits: Vec<Commit>,
}

fn apply(
    shared: &Shared,
    database: &Database,
    transactions: Vec<Transaction>,
) -> Result<Batch, redb::Error> {
    let mut write = database.begin_write()?;
    // It is the default, and everything rests on it.
    write.set_durability(Durability::Immediate)?;
    let (mut answers, mut commits) = (Vec::with_capacity(transactions.len()), Vec::new());
    {
        let mut entries = write.open_table(ENTRIES)?;
        let mut about = write.open_table(ABOUT)?;
        let before = about.get(REVISION)?.map_or(0, |number| number.value());
        let mut revision = Revision(before);
        for transaction in transactions {
            let holds = shared.owners.check(transaction.fence.as_ref()).and_then(|()| {
                transaction.check_versions(|key| match entries.get(key) {
                    Ok(found) => Ok(found.map(|found| Revision(found.value().0))),
                    Err(error) => Err(Error::unavailable(error)),
                })
            });
            if let Err(error) = holds {
                answers.push(Err(error));
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
            answers.push(Ok(revision));
        }
        if revision.0 != before {
            about.insert(REVISION, revision.0)?;
        }
    }
    Ok(Batch { write, answers, commits })
}
