//! Delivers events: calls the triggers of changes, in the order of the changes of each object, until each
//! call has succeeded.
//!
//! Events are stored with the change. The change of a trigger and the progress of its event are one
//! transaction, so each trigger is called at least once, and its change is stored once.
//!
//! A function that can't be reached is called again until it responds. An event that a function keeps
//! refusing is parked: it stays, with its reason, and blocks the later events of its object until it is
//! retried or discarded.

mod queue;

use std::{collections::HashMap, time::Duration};

use jiff::Timestamp;
use oprc_cp_storage::{Change, Check, Error as StoreError, Revision, Transaction, Watch};
use serde::Serialize;
use tokio::{
    sync::watch,
    task::{Id, JoinSet},
    time::{Instant, sleep, sleep_until},
};

use self::queue::{Delivery, ObjectQueue};
use crate::{
    Error, Grid,
    record::{
        EVENTS, PARKED, ParkedRecord, decode, encode, event_key, events_prefix, parked_key,
        parse_event_key,
    },
    stored_event::StoredEvent,
    trigger_call::batch_of,
};

/// Objects whose events are read at once.
const MAX_READS: usize = 64;
/// Calls of one trigger at once: a function that hangs stops only its own.
const MAX_CALLS: usize = 32;
/// Attempts of a call that the function refuses, until its event is parked.
const MAX_REFUSALS: u32 = 10;
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// Events that are read at once.
const PAGE: usize = 1000;

/// Calls triggers until it is dropped.
#[derive(Debug)]
pub struct Outbox {
    grid: Grid,
    /// Between the first two attempts of a call.
    first_delay: Duration,
}

/// An event that a function keeps refusing.
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

/// The oldest events of an object that one call gets.
#[derive(Debug)]
enum Due {
    Now(Vec<StoredEvent>),
    /// Waits for further events until then, or for this many.
    Later {
        at: Instant,
        missing: usize,
    },
    /// There is no event, or it is parked.
    Nothing,
    Unreadable,
}

/// What a task has done.
enum Done {
    Read(Due),
    Called(Delivery),
}

/// A task on an object.
struct Task {
    object: String,
    /// The trigger that it calls; none if it reads.
    trigger: Option<String>,
}

impl Outbox {
    pub fn new(grid: Grid) -> Self {
        Self { grid, first_delay: FIRST_DELAY }
    }

    /// Delivers events that are left from earlier, then new ones.
    pub async fn run(self) {
        let mut objects = ObjectQueue::new(self.first_delay);
        let (mut steps, mut tasks) = (JoinSet::new(), HashMap::<Id, Task>::new());
        let mut watch = None;
        let mut gains = self.grid.replica().map(|it| it.ownership.gains());
        loop {
            if watch.is_none() {
                watch = self.follow(&mut objects).await;
            }
            objects.wake(Instant::now());
            let mut reads = tasks.values().filter(|it| it.trigger.is_none()).count();
            while reads < MAX_READS
                && let Some(object) = objects.next()
            {
                let (grid, refusals) = (self.grid.clone(), objects.refusals(&object));
                let read = object.clone();
                let task =
                    steps.spawn(async move { Done::Read(due(&grid, &read, refusals).await) });
                tasks.insert(task.id(), Task { object, trigger: None });
                reads += 1;
            }
            self.grid.set_outbox_since(objects.oldest());
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
                    let (id, done) = match ended {
                        Ok((id, done)) => (id, done),
                        // A panic must not stop the delivery.
                        Err(error) => (error.id(), Done::Called(Delivery::Failed)),
                    };
                    let Some(Task { object, trigger }) = tasks.remove(&id) else { continue };
                    if let Some(trigger) = &trigger {
                        objects.release(trigger);
                    }
                    match done {
                        Done::Called(delivery) => objects.done(object, delivery),
                        Done::Read(due) => self.begin(object, due, &mut objects, &mut steps, &mut tasks),
                    }
                }
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
    }

    /// Calls the trigger of events that are due, or has their object wait.
    fn begin(
        &self,
        object: String,
        due: Due,
        objects: &mut ObjectQueue,
        steps: &mut JoinSet<Done>,
        tasks: &mut HashMap<Id, Task>,
    ) {
        let events = match due {
            Due::Now(events) => events,
            Due::Later { at, missing } => return objects.wait(object, at, missing),
            Due::Nothing => return objects.done(object, Delivery::Nothing),
            Due::Unreadable => return objects.done(object, Delivery::Failed),
        };
        let trigger = events.first().and_then(StoredEvent::trigger).unwrap_or_default().to_owned();
        if !objects.acquire(&trigger, &object, MAX_CALLS) {
            return;
        }
        let (grid, refusals) = (self.grid.clone(), objects.refusals(&object));
        let task =
            steps.spawn(async move { Done::Called(deliver(&grid, &events, refusals).await) });
        tasks.insert(task.id(), Task { object, trigger: Some(trigger) });
    }

    /// Reads all events, and watches for further ones. None if the store is unavailable.
    async fn follow(&self, objects: &mut ObjectQueue) -> Option<Watch> {
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
                tracing::warn!(%error, "cannot read events, retrying");
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
        std::future::pending::<()>().await;
    }
}

/// The objects of the next commit with events. None if the watch has ended.
async fn next_commit(watch: Option<&mut Watch>) -> Option<Vec<String>> {
    let commit = watch?.next().await.ok()?;
    let puts = commit.changes.iter().filter(|it| matches!(it, Change::Put { .. }));
    let objects = puts.filter_map(|it| parse_event_key(it.key()));
    Some(objects.map(|(object, _)| object.to_owned()).collect())
}

/// Reads the events of an object for its next call.
async fn due(grid: &Grid, object: &str, refusals: u32) -> Due {
    match read_due(grid, object, refusals).await {
        Ok(due) => due,
        Err(error) => {
            tracing::warn!(object, %error, "cannot read an event, retrying");
            Due::Unreadable
        }
    }
}

async fn read_due(grid: &Grid, object: &str, refusals: u32) -> Result<Due, Error> {
    // Its new owner delivers its events.
    if !grid.owns(object) {
        return Ok(Due::Nothing);
    }
    let class = grid.class();
    // After a refusal only one, because another one may be the reason.
    let size = class.batch.filter(|_| refusals == 0).map_or(1, |it| it.size);
    // The oldest event may be parked. This is read first: an event that is retried after it was read would be
    // delivered twice.
    let parked = grid.store().range(&parked_key(&events_prefix(object)), None, 1).await?;
    if !parked.entries.is_empty() {
        return Ok(Due::Nothing);
    }
    let page = grid.store().range(&events_prefix(object), None, size).await?;
    let mut events = Vec::with_capacity(page.entries.len());
    for entry in page.entries {
        let record = decode(&entry.key, &entry.value)?;
        events.push(StoredEvent { key: entry.key, version: entry.version, record });
    }
    let Some(first) = events.first() else { return Ok(Due::Nothing) };
    let Some(batch) = batch_of(&class, first) else {
        events.truncate(1);
        return Ok(Due::Now(events));
    };
    let is_same = |it: &StoredEvent| it.record.triggers == first.record.triggers;
    let same = events.iter().take_while(|it| is_same(it)).count();
    let age = Timestamp::now().as_millisecond().saturating_sub(first.record.at);
    let age = Duration::from_millis(u64::try_from(age).unwrap_or_default());
    let left = batch.timeout().saturating_sub(age);
    if same == events.len() && same < size && !left.is_zero() {
        return Ok(Due::Later { at: Instant::now() + left, missing: size - same });
    }
    events.truncate(same);
    Ok(Due::Now(events))
}

/// Calls the next trigger of events.
async fn deliver(grid: &Grid, events: &[StoredEvent], refusals: u32) -> Delivery {
    let Err(error) = grid.trigger(events).await else { return Delivery::Called };
    let Some(first) = events.first() else { return Delivery::Nothing };
    tracing::debug!(event = first.key, %error, "trigger failed, retrying");
    if error.is_transient() {
        return Delivery::Failed;
    }
    if refusals + 1 < MAX_REFUSALS {
        return Delivery::Refused;
    }
    match park(grid, first, refusals + 1, &error).await {
        Ok(()) => Delivery::Nothing,
        Err(_) => Delivery::Refused,
    }
}

async fn park(grid: &Grid, event: &StoredEvent, attempts: u32, error: &Error) -> Result<(), Error> {
    let trigger = event.record.triggers.first().cloned().unwrap_or_default();
    tracing::warn!(event = event.key, trigger, %error, "parked an event");
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
    let (object, number) = parse_event_key(key).ok_or_else(|| Error::NotFound(key.to_owned()))?;
    let mut transaction = Transaction::new()
        .check(parked_key(key), Check::Exists)
        .delete(parked_key(key))
        .delete(key);
    // The outbox sees that the next event was written.
    let page = grid.store().range(&events_prefix(object), Some(key), 1).await?;
    if let Some(next) = page.entries.into_iter().next() {
        transaction =
            transaction.check(&next.key, Check::Version(next.version)).put(next.key, next.value);
    } else {
        // One that is stored meanwhile would not be noticed.
        transaction = transaction.check(event_key(object, number + 1), Check::Absent);
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
