//! Delivers events: calls the triggers of changes, in the order of the changes of each object, until each
//! call has succeeded.
//!
//! Events are stored with the change. The change that a trigger makes and the progress of its event are
//! one transaction, so each trigger is called at least once, and its change is made once.
//!
//! A function that can't be reached is called again until it responds. An event that a function keeps
//! refusing is parked: it stays, with its reason, and blocks the later events of its object until it is
//! retried or discarded.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    time::{Duration, Instant as StdInstant},
};

use jiff::Timestamp;
use oprc_cp_storage::{Change, Check, Error as StoreError, Revision, Transaction, Watch};
use serde::Serialize;
use tokio::{
    sync::watch,
    task::{Id, JoinSet},
    time::{Instant, sleep, sleep_until},
};

use crate::{
    Error, Grid,
    record::{
        EVENTS, PARKED, ParkedRecord, decode, encode, events_prefix, parked_key, parse_event_key,
    },
    stored_event::StoredEvent,
};

/// Objects whose triggers are called at once.
const MAX_CALLS: usize = 64;
/// Attempts of a call that the function refuses, until its event is parked.
const MAX_REFUSALS: u32 = 10;
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(30);
/// Events that are read at once.
const PAGE: usize = 1000;

/// Calls triggers until it is dropped.
#[derive(Debug)]
pub struct Outbox {
    grid: Grid,
    /// Between the first two attempts of a call.
    first_delay: Duration,
}

/// An event that isn't delivered any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ParkedEvent {
    /// Identifies it.
    pub key: String,
    pub trigger: String,
    pub reason: String,
    pub attempts: u32,
    /// Milliseconds since 1970.
    pub at: i64,
}

/// Objects with events.
#[derive(Debug, Default)]
struct Objects {
    all: HashMap<String, Object>,
    /// Those to be delivered now, in this order.
    queue: VecDeque<String>,
    /// Those that wait for another attempt.
    waiting: BinaryHeap<Reverse<(Instant, String)>>,
}

#[derive(Debug)]
struct Object {
    /// When it became known that it has an event, or when its last event was delivered.
    since: StdInstant,
    /// An event was added while it is delivered.
    again: bool,
    /// Consecutive failures of its first event, and how many of them are refusals.
    failures: u32,
    refusals: u32,
}

impl Default for Object {
    fn default() -> Self {
        Self { since: StdInstant::now(), again: false, failures: 0, refusals: 0 }
    }
}

/// What delivering the first event of an object led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A trigger was called.
    Called,
    /// There is no event, or it is parked.
    Idle,
    Failed,
    Refused,
}

impl Objects {
    fn add(&mut self, object: &str) {
        match self.all.get_mut(object) {
            Some(known) => known.again = true,
            None => {
                self.all.insert(object.to_owned(), Object::default());
                self.queue.push_back(object.to_owned());
            }
        }
    }

    /// Moves objects whose time has come to the queue.
    fn wake(&mut self, now: Instant) {
        while self.waiting.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            if let Some(Reverse((_, object))) = self.waiting.pop() {
                self.queue.push_back(object);
            }
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        self.waiting.peek().map(|Reverse((at, _))| *at)
    }

    fn done(&mut self, object: String, step: Step, first_delay: Duration) {
        let Some(known) = self.all.get_mut(&object) else { return };
        match step {
            Step::Idle if !known.again => {
                self.all.remove(&object);
            }
            Step::Called | Step::Idle => {
                *known = Object::default();
                self.queue.push_back(object);
            }
            Step::Failed | Step::Refused => {
                let delay = first_delay.saturating_mul(1 << known.failures.min(16)).min(MAX_DELAY);
                known.failures += 1;
                known.refusals += u32::from(step == Step::Refused);
                self.waiting.push(Reverse((Instant::now() + delay, object)));
            }
        }
    }

    fn refusals(&self, object: &str) -> u32 {
        self.all.get(object).map_or(0, |it| it.refusals)
    }
}

impl Outbox {
    pub fn new(grid: Grid) -> Self {
        Self { grid, first_delay: FIRST_DELAY }
    }

    /// Delivers events that are left from earlier, then new ones.
    pub async fn run(self) {
        let mut objects = Objects::default();
        let (mut steps, mut running) = (JoinSet::new(), HashMap::<Id, String>::new());
        let mut watch = None;
        let mut gains = self.grid.replica().map(|it| it.ownership.gains());
        loop {
            if watch.is_none() {
                watch = self.follow(&mut objects).await;
            }
            objects.wake(Instant::now());
            while running.len() < MAX_CALLS
                && let Some(object) = objects.queue.pop_front()
            {
                let (grid, refusals) = (self.grid.clone(), objects.refusals(&object));
                let delivered = object.clone();
                let task = steps.spawn(async move { step(&grid, &delivered, refusals).await });
                running.insert(task.id(), object);
            }
            self.grid.set_outbox_since(objects.all.values().map(|it| it.since).min());
            let wake = objects.next_wake();
            tokio::select! {
                commit = next_commit(watch.as_mut()) => match commit {
                    Some(changed) => {
                        let own = changed.iter().filter(|it| self.grid.owns(it));
                        own.for_each(|object| objects.add(object));
                    }
                    None => watch = None,
                },
                // The events of partitions that were taken over have to be read.
                () = gained(gains.as_mut()) => watch = None,
                Some(ended) = steps.join_next_with_id() => {
                    let (id, outcome) = match ended {
                        Ok((id, outcome)) => (id, outcome),
                        // A panic must not stop the delivery.
                        Err(error) => (error.id(), Step::Failed),
                    };
                    if let Some(object) = running.remove(&id) {
                        objects.done(object, outcome, self.first_delay);
                    }
                }
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
    }

    /// Reads all events, and watches for further ones. None if the store is unavailable.
    async fn follow(&self, objects: &mut Objects) -> Option<Watch> {
        let followed = async {
            let (mut after, mut first) = (None::<String>, None::<Revision>);
            loop {
                let page = self.grid.store().range(EVENTS, after.as_deref(), PAGE).await?;
                first.get_or_insert(page.revision);
                for entry in &page.entries {
                    if let Some((object, _)) = parse_event_key(&entry.key)
                        && self.grid.owns(object)
                    {
                        objects.add(object);
                    }
                }
                after = page.entries.last().map(|it| it.key.clone());
                if !page.more {
                    return self.grid.store().watch(EVENTS, first).await;
                }
            }
        };
        match followed.await {
            Ok(watch) => Some(watch),
            Err(error) => {
                tracing::warn!(%error, "cannot read events, trying again");
                sleep(self.first_delay).await;
                None
            }
        }
    }
}

/// Resolves when this node has taken over partitions; never if there are no other nodes.
async fn gained(gains: Option<&mut watch::Receiver<u64>>) {
    let Some(gains) = gains else { return std::future::pending().await };
    if gains.changed().await.is_err() {
        std::future::pending().await;
    }
}

/// The objects of the next commit with events. None if the watch has ended.
async fn next_commit(watch: Option<&mut Watch>) -> Option<Vec<String>> {
    let commit = watch?.next().await.ok()?;
    let puts = commit.changes.iter().filter(|it| matches!(it, Change::Put { .. }));
    let objects = puts.filter_map(|it| parse_event_key(it.key()));
    Some(objects.map(|(object, _)| object.to_owned()).collect())
}

/// Calls the next trigger of the oldest event of an object.
async fn step(grid: &Grid, object: &str, refusals: u32) -> Step {
    // Its new owner delivers its events.
    if !grid.owns(object) {
        return Step::Idle;
    }
    let event = match oldest(grid, object).await {
        Ok(Some(event)) => event,
        Ok(None) => return Step::Idle,
        Err(error) => {
            tracing::warn!(object, %error, "cannot read an event, trying again");
            return Step::Failed;
        }
    };
    let Err(error) = grid.trigger(&event).await else { return Step::Called };
    tracing::debug!(object, %error, "a trigger failed, trying again");
    if !is_refusal(&error) {
        return Step::Failed;
    }
    if refusals + 1 < MAX_REFUSALS {
        return Step::Refused;
    }
    match park(grid, &event, refusals + 1, &error).await {
        Ok(()) => Step::Idle,
        Err(_) => Step::Refused,
    }
}

/// The oldest event of an object; none if there is none, or it is parked.
async fn oldest(grid: &Grid, object: &str) -> Result<Option<StoredEvent>, Error> {
    let page = grid.store().range(&events_prefix(object), None, 1).await?;
    let Some(entry) = page.entries.into_iter().next() else { return Ok(None) };
    if grid.store().get(&parked_key(&entry.key)).await?.is_some() {
        return Ok(None);
    }
    let record = decode(&entry.key, &entry.value)?;
    Ok(Some(StoredEvent { key: entry.key, version: entry.version, record }))
}

/// Whether the same call would be refused again.
fn is_refusal(error: &Error) -> bool {
    !matches!(
        error,
        Error::FunctionUnreachable(_)
            | Error::FunctionTimeout(_)
            | Error::FunctionFailed(502..=504)
            | Error::Refused { status: 408 | 429, .. }
            | Error::Overloaded(_)
            | Error::NotOwner(_)
            | Error::Unavailable(_)
            | Error::UnknownOutcome(_)
    )
}

async fn park(grid: &Grid, event: &StoredEvent, attempts: u32, error: &Error) -> Result<(), Error> {
    let trigger = event.record.triggers.first().cloned().unwrap_or_default();
    tracing::warn!(event = event.key, trigger, %error, "an event is parked");
    let at = Timestamp::now().as_millisecond();
    let record = ParkedRecord { trigger, reason: error.to_string(), attempts, at };
    let transaction = Transaction::new()
        .check(&event.key, Check::Version(event.version))
        .put(parked_key(&event.key), encode(&record)?);
    grid.store().commit(transaction).await?;
    Ok(())
}

/// Delivers a parked event again.
pub async fn retry(grid: &Grid, key: &str) -> Result<(), Error> {
    let missing = || Error::NotFound(key.to_owned());
    parse_event_key(key).ok_or_else(missing)?;
    let entry = grid.store().get(key).await?.ok_or_else(missing)?;
    let transaction = Transaction::new()
        .check(parked_key(key), Check::Exists)
        .check(key, Check::Version(entry.version))
        .delete(parked_key(key))
        // The outbox sees that the event was written.
        .put(key, entry.value);
    unpark(grid, key, transaction).await
}

/// Deletes a parked event, so that the later ones of its object are delivered.
pub async fn discard(grid: &Grid, key: &str) -> Result<(), Error> {
    let (object, _) = parse_event_key(key).ok_or_else(|| Error::NotFound(key.to_owned()))?;
    let mut transaction = Transaction::new()
        .check(parked_key(key), Check::Exists)
        .delete(parked_key(key))
        .delete(key);
    // The outbox sees that the next event was written.
    let page = grid.store().range(&events_prefix(object), Some(key), 1).await?;
    if let Some(next) = page.entries.into_iter().next() {
        transaction =
            transaction.check(&next.key, Check::Version(next.version)).put(next.key, next.value);
    }
    unpark(grid, key, transaction).await
}

async fn unpark(grid: &Grid, key: &str, transaction: Transaction) -> Result<(), Error> {
    match grid.store().commit(transaction).await {
        Ok(_) => Ok(()),
        Err(StoreError::Conflict { .. }) => Err(Error::NotFound(key.to_owned())),
        Err(error) => Err(error.into()),
    }
}

/// All parked events.
pub async fn parked(grid: &Grid) -> Result<Vec<ParkedEvent>, Error> {
    let page = grid.store().list(PARKED).await?;
    let all = page.entries.iter().map(|entry| {
        let ParkedRecord { trigger, reason, attempts, at } = decode(&entry.key, &entry.value)?;
        let key = entry.key.strip_prefix(PARKED).unwrap_or_default().to_owned();
        Ok(ParkedEvent { key, trigger, reason, attempts, at })
    });
    all.collect()
}

#[cfg(test)]
mod tests;
