//! Delivers events: calls the triggers of changes, in the order of the changes of each object, until each
//! call has succeeded.
//!
//! Events are stored with the change. One is deleted after its triggers were called, so each is called at
//! least once; an idempotency key keeps the state from changing twice.
//!
//! A function that can't be reached is called again until it responds. An event that a function keeps
//! refusing is parked: it stays, with its reason, and blocks the later events of its object until it is
//! retried or discarded.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use oprc_cp_storage::{Check, Error as StoreError, Transaction};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::{sync::Semaphore, task::JoinSet, time::sleep};

use crate::{
    Error, Grid,
    record::{
        EVENTS, EventRecord, PARKED, ParkedRecord, decode, encode, events_prefix, parked_key,
        parse_event_key,
    },
};

/// Objects whose triggers are called at once.
const MAX_CALLS: usize = 64;
/// Attempts of a call that the function refuses, until its event is parked.
const MAX_ATTEMPTS: u32 = 8;
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(30);

/// Growing delays between attempts.
#[derive(Clone, Copy, Debug)]
struct Backoff {
    next: Duration,
}

impl Backoff {
    async fn wait(&mut self) {
        sleep(self.next).await;
        self.next = MAX_DELAY.min(self.next * 2);
    }
}

/// Calls triggers until it is dropped.
#[derive(Debug)]
pub struct Outbox {
    grid: Grid,
    objects: Arc<Mutex<HashMap<String, Delivery>>>,
    calls: Arc<Semaphore>,
    backoff: Backoff,
}

/// Whether events of an object are being delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    Active,
    /// An event was added meanwhile.
    Again,
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

impl Outbox {
    pub fn new(grid: Grid) -> Self {
        let (objects, calls) = (Arc::default(), Arc::new(Semaphore::new(MAX_CALLS)));
        Self { grid, objects, calls, backoff: Backoff { next: FIRST_DELAY } }
    }

    /// Delivers events that are left from earlier, then new ones.
    pub async fn run(self) -> Result<(), Error> {
        let mut deliveries = JoinSet::new();
        let parked: HashSet<_> = parked(&self.grid).await?.into_iter().map(|it| it.key).collect();
        let page = self.grid.store().list(EVENTS).await?;
        let left: HashSet<_> = page
            .entries
            .iter()
            .filter_map(|it| parse_event_key(&it.key))
            .map(|(object, _)| object.to_owned())
            .collect();
        for object in left {
            let is_parked = parked.iter().any(|key| key.starts_with(&events_prefix(&object)));
            if !is_parked {
                self.deliver(&mut deliveries, object);
            }
        }
        loop {
            tokio::select! {
                changed = self.grid.events().take() => {
                    for object in changed {
                        self.deliver(&mut deliveries, object);
                    }
                }
                Some(_) = deliveries.join_next() => {}
            }
        }
    }

    fn deliver(&self, deliveries: &mut JoinSet<()>, object: String) {
        match self.objects.lock().entry(object.clone()) {
            Entry::Occupied(mut active) => {
                active.insert(Delivery::Again);
                return;
            }
            Entry::Vacant(idle) => idle.insert(Delivery::Active),
        };
        let objects = self.objects.clone();
        let (grid, calls, backoff) = (self.grid.clone(), self.calls.clone(), self.backoff);
        let deliverer = Deliverer { grid, calls, backoff };
        deliveries.spawn(async move {
            loop {
                deliverer.deliver_all(&object).await;
                let mut objects = objects.lock();
                if objects.get(&object) != Some(&Delivery::Again) {
                    objects.remove(&object);
                    return;
                }
                objects.insert(object.clone(), Delivery::Active);
            }
        });
    }
}

/// Delivers events of one object.
struct Deliverer {
    grid: Grid,
    calls: Arc<Semaphore>,
    backoff: Backoff,
}

impl Deliverer {
    /// Delivers all events, in their order, until there is none or one is parked.
    async fn deliver_all(&self, object: &str) {
        let mut backoff = self.backoff;
        loop {
            match next(&self.grid, object).await {
                Ok(None) => return,
                Ok(Some((key, event))) => {
                    if !self.deliver(&key, &event).await {
                        return;
                    }
                    backoff = self.backoff;
                }
                Err(_) => backoff.wait().await,
            }
        }
    }

    /// Calls all triggers of an event, then deletes it. Returns false if it is parked.
    async fn deliver(&self, key: &str, event: &EventRecord) -> bool {
        let Self { grid, calls, .. } = self;
        let number = parse_event_key(key).map_or(0, |(_, number)| number);
        let (mut backoff, mut refused) = (self.backoff, 0);
        let mut triggers = event.triggers.iter().enumerate().peekable();
        while let Some((index, method)) = triggers.peek() {
            let once = format!("event-{:x}-{number:x}-{index}", event.at);
            let called = {
                let Ok(_permit) = calls.acquire().await else { return false };
                grid.trigger(method, event, once).await
            };
            let Err(error) = called else {
                triggers.next();
                continue;
            };
            refused += u32::from(is_permanent(&error));
            if refused >= MAX_ATTEMPTS {
                let parked = ParkedRecord {
                    trigger: (*method).clone(),
                    reason: error.to_string(),
                    attempts: refused,
                    at: Timestamp::now().as_millisecond(),
                };
                if park(grid, key, &parked).await.is_ok() {
                    return false;
                }
            }
            backoff.wait().await;
        }
        let mut backoff = self.backoff;
        while grid.store().commit(Transaction::new().delete(key)).await.is_err() {
            backoff.wait().await;
        }
        true
    }
}

/// The oldest event of an object; none if there is none, or it is parked.
async fn next(grid: &Grid, object: &str) -> Result<Option<(String, EventRecord)>, Error> {
    let page = grid.store().range(&events_prefix(object), None, 1).await?;
    let Some(entry) = page.entries.into_iter().next() else { return Ok(None) };
    if grid.store().get(&parked_key(&entry.key)).await?.is_some() {
        return Ok(None);
    }
    let event = decode(&entry.key, &entry.value)?;
    Ok(Some((entry.key, event)))
}

/// Whether a call of the same event would fail again.
fn is_permanent(error: &Error) -> bool {
    !matches!(
        error,
        Error::FunctionUnreachable(_)
            | Error::FunctionTimeout(_)
            | Error::FunctionFailed(502..=504)
            | Error::Refused { status: 408 | 429, .. }
            | Error::Overloaded(_)
            | Error::Unavailable(_)
            | Error::UnknownOutcome(_)
    )
}

async fn park(grid: &Grid, key: &str, record: &ParkedRecord) -> Result<(), Error> {
    let transaction = Transaction::new().put(parked_key(key), encode(record)?);
    grid.store().commit(transaction).await?;
    Ok(())
}

/// Delivers a parked event again.
pub async fn retry(grid: &Grid, key: &str) -> Result<(), Error> {
    unpark(grid, key, Transaction::new().delete(parked_key(key))).await
}

/// Deletes a parked event, so that the later ones of its object are delivered.
pub async fn discard(grid: &Grid, key: &str) -> Result<(), Error> {
    unpark(grid, key, Transaction::new().delete(parked_key(key)).delete(key)).await
}

async fn unpark(grid: &Grid, key: &str, transaction: Transaction) -> Result<(), Error> {
    let missing = || Error::NotFound(key.to_owned());
    let (object, _) = parse_event_key(key).ok_or_else(missing)?;
    let transaction = transaction.check(parked_key(key), Check::Exists);
    grid.store().commit(transaction).await.map_err(|error| match error {
        StoreError::Conflict { .. } => missing(),
        other => other.into(),
    })?;
    grid.events().add(object);
    Ok(())
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
