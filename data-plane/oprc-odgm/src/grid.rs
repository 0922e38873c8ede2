//! The objects of a class: reads and writes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use oprc_cp_storage::{Change, Check, Error as StoreError, Revision, Store, Transaction};
use parking_lot::{Mutex, RwLock};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    Error, ObjectId,
    active_runs::ActiveRuns,
    call_token::CallTokens,
    class::{Cause, Class, State, StateType},
    counts::Counts,
    equality::same,
    event_waiters::{EventWaiter, EventWaiters},
    function::Functions,
    http_client::HttpClient,
    invocation::{CallOrigin, Expected, Object, ObjectBatch, ObjectPage},
    metrics::Metrics,
    object_change::{Found, ObjectChange},
    record::{
        CALL_KEY, EPOCH, ObjectRecord, decode, encode, event_key, events_prefix, object_key,
        objects_prefix, parse_event_key,
    },
    replica::{Replica, lost_partition},
    results::Results,
    turns::Turns,
};

/// Attempts of a call whose commit fails because something else changed the object meanwhile.
pub(crate) const MAX_ATTEMPTS: usize = 5;
const MAX_PAGE: usize = 1000;
/// Objects that are read at once, and bytes after which a page ends.
const CHUNK: usize = 16;
const MAX_PAGE_BYTES: usize = 4 << 20;
/// Keys of events are longer by 20 bytes, and the store accepts 512.
const MAX_KEY_BYTES: usize = 490;
/// Events of an object that wait for their triggers. More refuse changes, except those of its triggers,
/// without which there would be no end.
const MAX_PENDING_EVENTS: u64 = 1000;
/// The bound is checked with every so many events, because it takes a read.
const PENDING_EVENTS_STEP: u64 = 16;

/// The objects of a class. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Grid {
    store: Store,
    class: Arc<RwLock<Arc<Class>>>,
    /// Of the store, see [`EPOCH`].
    epoch: u32,
    counts: Arc<Counts>,
    pub(crate) turns: Turns,
    pub(crate) client: HttpClient,
    pub(crate) functions: Functions,
    pub(crate) tokens: Arc<CallTokens>,
    pub(crate) results: Arc<Results>,
    pub(crate) waiters: EventWaiters,
    pub(crate) active_runs: ActiveRuns,
    /// None if the node is the only one of its grid.
    replica: Option<Arc<Replica>>,
    metrics: Arc<Metrics>,
    /// Since when the oldest event of this node waits.
    outbox_since: Arc<Mutex<Option<Instant>>>,
}

/// Whether a commit was made.
pub(crate) enum Committed {
    At(Revision),
    /// Something else has changed the object.
    Conflict,
}

/// A change that is ready to be stored, with its event.
pub(crate) struct PreparedChange {
    pub(crate) transaction: Transaction,
    /// Waits for the triggers of the event.
    pub(crate) waiter: Option<EventWaiter>,
}

/// Whether a change is refused if too many events of the object wait for their triggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventBound {
    Checked,
    Exempt,
}

/// Identifies an attempt to change an object, so that its outcome can be found out.
pub(crate) fn new_id() -> String {
    format!("{:016x}", fastrand::u64(..))
}

pub(crate) fn changes_too_often() -> Error {
    Error::Unavailable("the object changes too often".to_owned())
}

pub(crate) fn now() -> i64 {
    Timestamp::now().as_millisecond()
}

impl Grid {
    /// The objects of a store, which nothing else changes.
    pub async fn open(store: Store, class: Class) -> Result<Self, Error> {
        let counts = Arc::new(Counts::read(&store, &class.collections).await?);
        let results = Arc::new(Results::read(&store).await?);
        let epoch = epoch(&store).await?;
        Ok(Self { epoch, counts, results, ..Self::new(store, class) })
    }

    /// The objects of an empty store.
    pub fn new(store: Store, class: Class) -> Self {
        let client = HttpClient::new();
        Self {
            store,
            class: Arc::new(RwLock::new(Arc::new(class))),
            epoch: fastrand::u32(..),
            counts: Arc::default(),
            turns: Turns::default(),
            functions: Functions::new(client.clone()),
            client,
            tokens: Arc::new(CallTokens::random()),
            results: Arc::default(),
            waiters: EventWaiters::default(),
            active_runs: ActiveRuns::default(),
            replica: None,
            metrics: Arc::default(),
            outbox_since: Arc::default(),
        }
    }

    /// The objects of a store that several nodes change.
    pub(crate) async fn replicated(
        store: Store,
        class: Class,
        replica: Arc<Replica>,
    ) -> Result<Self, Error> {
        let results = Arc::new(Results::read(&store).await?);
        let epoch = epoch(&store).await?;
        let tokens = Arc::new(CallTokens::new(&call_key(&store).await?));
        let replica = Some(replica);
        Ok(Self { epoch, tokens, results, replica, ..Self::new(store, class) })
    }

    pub(crate) fn replica(&self) -> Option<&Arc<Replica>> {
        self.replica.as_ref()
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// How long the oldest event of this node waits.
    pub(crate) fn outbox_age(&self) -> Option<Duration> {
        self.outbox_since.lock().map(|it| it.elapsed())
    }

    pub(crate) fn set_outbox_since(&self, since: Option<Instant>) {
        *self.outbox_since.lock() = since;
    }

    /// Whether this node executes the calls of an object.
    pub(crate) fn owns(&self, object_key: &str) -> bool {
        self.replica.as_ref().is_none_or(|it| it.ownership.owns(object_key))
    }

    /// Adds the check that this node executes the calls of an object.
    pub(crate) fn fenced(
        &self,
        transaction: Transaction,
        object_key: &str,
    ) -> Result<Transaction, Error> {
        match &self.replica {
            Some(replica) => replica.fenced(transaction, object_key),
            None => Ok(transaction),
        }
    }

    /// Nodes of the same grid must have equal ones.
    #[must_use]
    pub fn with_call_tokens(self, tokens: CallTokens) -> Self {
        Self { tokens: Arc::new(tokens), ..self }
    }

    /// Identifies a version of an object among all that any store of this grid has had.
    pub fn etag(&self, version: u64) -> String {
        format!("\"{:08x}-{version}\"", self.epoch)
    }

    /// The version of an ETag; none if it is that of another store.
    pub fn version_of_etag(&self, tag: &str) -> Option<u64> {
        let (epoch, version) = tag.strip_prefix('"')?.strip_suffix('"')?.split_once('-')?;
        let is_own = epoch.len() == 8 && u32::from_str_radix(epoch, 16) == Ok(self.epoch);
        version.parse().ok().filter(|_| is_own)
    }

    /// The number of objects of a collection.
    pub async fn count(&self, collection: &str) -> Result<u64, Error> {
        match &self.replica {
            Some(_) => Ok(self.store.count(&objects_prefix(collection)).await?),
            None => Ok(self.counts.of(collection)),
        }
    }

    /// Counts an object that was restored from a backup.
    pub(crate) fn count_restored(&self, key: &str) {
        let class = self.class();
        let of = |it: &&String| key.starts_with(&objects_prefix(it));
        if let Some(collection) = class.collections.iter().find(of) {
            self.counts.created(collection);
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Replaces the definition of the class. Calls that have begun keep the former.
    pub fn set_class(&self, class: Class) {
        self.functions.limits.retain(|name| class.methods.contains_key(name));
        *self.class.write() = Arc::new(class);
    }

    pub fn class(&self) -> Arc<Class> {
        self.class.read().clone()
    }

    pub async fn get(&self, collection: Option<&str>, id: &ObjectId) -> Result<Object, Error> {
        let class = self.class();
        let found = self.read(&class, collection, id).await?;
        let version = found.version().unwrap_or_default();
        Ok(Object { id: id.to_string(), version, state: found.state(&class)?.into_owned() })
    }

    /// An object as this node's member of the store knows it, which may be an older state. Succeeds without
    /// a majority of the members.
    pub async fn get_stale(
        &self,
        collection: Option<&str>,
        id: &ObjectId,
    ) -> Result<Object, Error> {
        let class = self.class();
        let key = Self::key(&class, collection, id)?;
        let missing = || Error::NotFound(id.to_string());
        let entry = self.store.get_stale(&key).await?.ok_or_else(missing)?;
        let record: ObjectRecord = decode(&key, &entry.value)?;
        Ok(Object { id: id.to_string(), version: entry.version.0, state: record.state })
    }

    /// Objects whose ids start with the prefix, in the order of their ids.
    pub async fn list(
        &self,
        collection: Option<&str>,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<ObjectPage, Error> {
        let class = self.class();
        let objects = objects_prefix(class.collection(collection)?);
        let prefix = format!("{objects}{prefix}");
        let mut after = after.map(|after| format!("{objects}{after}"));
        let (limit, mut bytes, mut found) = (limit.clamp(1, MAX_PAGE), 0, Vec::new());
        loop {
            let chunk = CHUNK.min(limit - found.len());
            let page = self.store.range(&prefix, after.as_deref(), chunk).await;
            let page = page.map_err(|error| match error {
                StoreError::Invalid { reason } => Error::InvalidId(reason),
                other => other.into(),
            })?;
            let mut entries = page.entries.into_iter().peekable();
            while bytes < MAX_PAGE_BYTES
                && let Some(entry) = entries.next()
            {
                let record: ObjectRecord = decode(&entry.key, &entry.value)?;
                let id = entry.key.strip_prefix(&objects).unwrap_or_default().to_owned();
                bytes += entry.value.len();
                found.push(Object { id, version: entry.version.0, state: record.state });
                after = Some(entry.key);
            }
            let more = page.more || entries.peek().is_some();
            if !more || found.len() >= limit || bytes >= MAX_PAGE_BYTES {
                let next = found.last().filter(|_| more).map(|it| it.id.clone());
                return Ok(ObjectPage { objects: found, next });
            }
        }
    }

    /// Objects by id. Those that there is no room for in one answer are left.
    pub async fn batch_get(
        &self,
        collection: Option<&str>,
        ids: &[ObjectId],
    ) -> Result<ObjectBatch, Error> {
        if ids.len() > MAX_PAGE {
            let (what, count) = ("the list of ids", ids.len());
            return Err(Error::TooMany { what, count, limit: MAX_PAGE });
        }
        let (class, mut batch, mut bytes) = (self.class(), ObjectBatch::default(), 0);
        for id in ids {
            if bytes >= MAX_PAGE_BYTES {
                batch.left.push(id.to_string());
                continue;
            }
            let found = self.read(&class, collection, id).await?;
            match (found.version(), found.state(&class)) {
                (version, Ok(state)) => {
                    let (version, state) = (version.unwrap_or_default(), state.into_owned());
                    bytes += serde_json::to_vec(&state).map_or(0, |it| it.len());
                    batch.objects.push(Object { id: id.to_string(), version, state });
                }
                (_, Err(_)) => batch.missing.push(id.to_string()),
            }
        }
        Ok(batch)
    }

    /// Creates an object or replaces its state.
    pub(crate) async fn put_locally(
        &self,
        collection: Option<&str>,
        id: &ObjectId,
        state: State,
        expected: Expected,
    ) -> Result<Object, Error> {
        let revision =
            self.write(collection, id, expected, |_, _| Ok(Some(state.clone()))).await?.0;
        Ok(Object { id: id.to_string(), version: revision.0, state })
    }

    /// Sets some keys of an object. A null removes a key.
    pub(crate) async fn patch_locally(
        &self,
        collection: Option<&str>,
        id: &ObjectId,
        changes: State,
        expected: Expected,
    ) -> Result<Object, Error> {
        let patched = |found: &Found, class: &Class| {
            let mut state = found.state(class)?.into_owned();
            for (key, value) in &changes {
                if value.is_null() {
                    state.remove(key);
                } else {
                    state.insert(key.clone(), value.clone());
                }
            }
            Ok(Some(state))
        };
        let (revision, state) = self.write(collection, id, expected, patched).await?;
        let state = state.unwrap_or_default();
        Ok(Object { id: id.to_string(), version: revision.0, state })
    }

    pub(crate) async fn delete_locally(
        &self,
        collection: Option<&str>,
        id: &ObjectId,
        expected: Expected,
    ) -> Result<(), Error> {
        let deleted = |found: &Found, _: &Class| match found.record {
            Some(_) => Ok(None),
            None => Err(found.missing()),
        };
        self.write(collection, id, expected, deleted).await.map(drop)
    }

    /// Fails if a call of the object led to this one: it has the turn until it ends.
    pub fn check_reentrancy(
        &self,
        collection: Option<&str>,
        id: &ObjectId,
        origin: &CallOrigin,
    ) -> Result<(), Error> {
        let key = Self::key(&self.class(), collection, id)?;
        if origin.contains(&key) { Err(Error::Reentrant(id.to_string())) } else { Ok(()) }
    }

    /// Changes an object to what `change` returns, or deletes it if that is none. Returns after the
    /// triggers that the caller waits for.
    async fn write(
        &self,
        collection: Option<&str>,
        id: &ObjectId,
        expected: Expected,
        change: impl Fn(&Found, &Class) -> Result<Option<State>, Error>,
    ) -> Result<(Revision, Option<State>), Error> {
        let class = self.class();
        let (revision, state, waiter) =
            self.write_in_turn(&class, collection, id, &expected, change).await?;
        if let Some(waiter) = waiter {
            waiter.wait().await;
        }
        Ok((revision, state))
    }

    async fn write_in_turn(
        &self,
        class: &Class,
        collection: Option<&str>,
        id: &ObjectId,
        expected: &Expected,
        change: impl Fn(&Found, &Class) -> Result<Option<State>, Error>,
    ) -> Result<(Revision, Option<State>, Option<EventWaiter>), Error> {
        let key = Self::key(class, collection, id)?;
        let _turn = self.turns.take(&key).await?;
        for _ in 0..MAX_ATTEMPTS {
            let found = self.read(class, collection, id).await?;
            expected.check(found.version())?;
            let state = change(&found, class)?;
            let (invocation, cause) = (&new_id(), Cause::default());
            let change = ObjectChange { found: &found, state, invocation, cause };
            let prepared = self.prepare(class, &change, EventBound::Checked).await?;
            let PreparedChange { transaction, waiter } = prepared;
            if let Committed::At(revision) = self.commit(transaction, &found, invocation).await? {
                return Ok((revision, change.state, waiter));
            }
        }
        Err(changes_too_often())
    }

    /// The transaction of a change, with its event.
    pub(crate) async fn prepare(
        &self,
        class: &Class,
        change: &ObjectChange<'_>,
        bound: EventBound,
    ) -> Result<PreparedChange, Error> {
        let ObjectChange { found, state, invocation, .. } = change;
        let key = &found.key;
        let event = change.event(class);
        let number = match &found.record {
            Some(record) => record.next_event,
            // Events of a deleted object with the same id may be left.
            None => self.next_event(key).await?,
        };
        let is_checked = bound == EventBound::Checked && number.is_multiple_of(PENDING_EVENTS_STEP);
        if event.is_some() && is_checked {
            self.check_pending(key, number).await?;
        }
        let mut transaction = Transaction::new().check(key, found.check());
        transaction = match state {
            None => transaction.delete(key),
            Some(state) => {
                class.check(state)?;
                if let Some(former) = &found.record {
                    class.check_change(&former.state, state, same)?;
                }
                let changed = now();
                let record = ObjectRecord {
                    state: state.clone(),
                    created: found.record.as_ref().map_or(changed, |it| it.created),
                    changed,
                    last: (*invocation).to_owned(),
                    next_event: number + u64::from(event.is_some()),
                    changes: found.record.as_ref().map_or(0, |it| it.changes + 1),
                };
                transaction.put(key, encode(&record)?)
            }
        };
        let mut waiter = None;
        if let Some(event) = event {
            let event_key = event_key(key, number);
            waiter = event
                .waited
                .map(|(ignored, limit)| self.waiters.register(&event_key, ignored, limit));
            transaction = transaction.check(&event_key, Check::Absent);
            transaction = transaction.put(event_key, encode(&event.record)?);
        }
        Ok(PreparedChange { transaction, waiter })
    }

    /// Events of an object have consecutive numbers, and the oldest is the first that is removed.
    async fn check_pending(&self, object_key: &str, next: u64) -> Result<(), Error> {
        let oldest = self.store.range(&events_prefix(object_key), None, 1).await?;
        let oldest = oldest.entries.first().and_then(|it| parse_event_key(&it.key));
        let pending = oldest.map_or(0, |(_, number)| next.saturating_sub(number));
        if pending >= MAX_PENDING_EVENTS { Err(Error::EventsPending(pending)) } else { Ok(()) }
    }

    async fn next_event(&self, object_key: &str) -> Result<u64, Error> {
        let pending = self.store.list(&events_prefix(object_key)).await?;
        let last = pending.entries.last().and_then(|it| parse_event_key(&it.key));
        Ok(last.map_or(0, |(_, number)| number + 1))
    }

    /// Commits a change of an object. Whether it was made is found out if the store doesn't know.
    pub(crate) async fn commit(
        &self,
        transaction: Transaction,
        found: &Found,
        invocation: &str,
    ) -> Result<Committed, Error> {
        let is_own = |it: &&Change| it.key() == found.key;
        let change = transaction.changes.iter().find(is_own).map(|it| it.value().is_some());
        let committed = self.committed(transaction, found, invocation).await;
        if let Ok(Committed::At(_)) = committed {
            self.count_change(found, change);
        }
        committed
    }

    /// `change` is whether the object was put or deleted.
    pub(crate) fn count_change(&self, found: &Found, change: Option<bool>) {
        match (&found.record, change) {
            (None, Some(true)) => self.counts.created(&found.collection),
            (Some(_), Some(false)) => self.counts.deleted(&found.collection),
            _ => {}
        }
    }

    async fn committed(
        &self,
        transaction: Transaction,
        found: &Found,
        invocation: &str,
    ) -> Result<Committed, Error> {
        let transaction = self.fenced(transaction, &found.key)?;
        for _ in 0..MAX_ATTEMPTS {
            let reason = match self.store.commit(transaction.clone()).await {
                Ok(revision) => return Ok(Committed::At(revision)),
                Err(StoreError::UnknownOutcome { reason }) => reason,
                Err(error @ StoreError::Conflict { .. }) => {
                    // An attempt whose outcome was unknown may have been committed late.
                    return match self.last_change(found).await {
                        Ok(Some((last, version))) if last == invocation => {
                            Ok(Committed::At(version))
                        }
                        _ => {
                            self.metrics.conflicts.inc();
                            lost_partition(&error).map_or(Ok(Committed::Conflict), Err)
                        }
                    };
                }
                Err(error) => return Err(error.into()),
            };
            let unknown = Error::UnknownOutcome(reason);
            let Ok(present) = self.last_change(found).await else { return Err(unknown) };
            match present {
                Some((last, version)) if last == invocation => return Ok(Committed::At(version)),
                // The same transaction can succeed only once, because it checks the version.
                present if present.as_ref().map(|it| it.1) == found.version => {}
                _ => return Err(unknown),
            }
        }
        Err(Error::UnknownOutcome("the store did not respond in time".to_owned()))
    }

    /// The invocation that changed an object last, and the version.
    async fn last_change(&self, found: &Found) -> Result<Option<(String, Revision)>, Error> {
        let Some(entry) = self.store.get(&found.key).await? else { return Ok(None) };
        let record: ObjectRecord = decode(&found.key, &entry.value)?;
        Ok(Some((record.last, entry.version)))
    }

    pub(crate) fn key(
        class: &Class,
        collection: Option<&str>,
        id: &ObjectId,
    ) -> Result<String, Error> {
        let collection = class.collection(collection)?;
        let key = object_key(collection, id);
        if key.len() > MAX_KEY_BYTES {
            return Err(Error::InvalidId("is too long for the name of its collection".to_owned()));
        }
        if class.state_type == StateType::Singleton && id.as_str() != ObjectId::SINGLETON {
            let reason = format!("must be {:?}: the class has one object", ObjectId::SINGLETON);
            return Err(Error::InvalidId(reason));
        }
        Ok(key)
    }

    pub(crate) async fn read(
        &self,
        class: &Class,
        collection: Option<&str>,
        id: &ObjectId,
    ) -> Result<Found, Error> {
        let key = Self::key(class, collection, id)?;
        let collection = class.collection(collection)?.to_owned();
        let entry = self.store.get(&key).await?;
        let version = entry.as_ref().map(|it| it.version);
        let record = entry.map(|it| decode(&key, &it.value)).transpose()?;
        Ok(Found { collection, id: id.clone(), key, record, version })
    }
}

/// The epoch of a store, which is made when the store is used first.
async fn epoch(store: &Store) -> Result<u32, Error> {
    made_once(store, EPOCH, fastrand::u32(..)).await
}

/// The key of the call tokens, which all nodes share.
async fn call_key(store: &Store) -> Result<[u8; 32], Error> {
    let mut key = [0; 32];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut key)
        .map_err(|_| Error::Unavailable("the system has no random numbers".to_owned()))?;
    made_once(store, CALL_KEY, key).await
}

/// The value of a key, which the first node that needs it makes.
async fn made_once<T: Serialize + DeserializeOwned>(
    store: &Store,
    key: &str,
    value: T,
) -> Result<T, Error> {
    let value = encode(&value)?;
    for _ in 0..MAX_ATTEMPTS {
        if let Some(entry) = store.get(key).await? {
            return decode(key, &entry.value);
        }
        let transaction = Transaction::new().check(key, Check::Absent).put(key, value.clone());
        // Another node may have made it.
        match store.commit(transaction).await {
            Ok(_) | Err(StoreError::Conflict { .. } | StoreError::UnknownOutcome { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::Unavailable(format!("{key} cannot be made")))
}

#[cfg(test)]
mod tests;
