//! The objects of a class: reads, writes and calls of methods.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use oprc_cp_storage::{
    Change, Check, Error as StoreError, MAX_OPERATIONS, Revision, Store, Transaction,
};
use parking_lot::{Mutex, RwLock};
use serde_json::{Value, json};

use crate::{
    Error, ObjectId,
    class::{Access, Cause, Class, Method, State, StateType},
    counts::Counts,
    function::{Call, CalledObject, Functions},
    invocation::{Expected, Invocation, Object, ObjectPage, Outcome},
    metrics::Metrics,
    object_change::{Found, ObjectChange},
    once::Once,
    record::{
        EventRecord, INVOCATIONS, InvocationRecord, ObjectRecord, decode, encode, event_key,
        events_prefix, object_key, objects_prefix, parse_event_key, period, period_of_key,
    },
    replica::{Replica, lost_partition},
    stored_event::StoredEvent,
    turns::Turns,
};

/// Attempts of a call whose commit fails because something else changed the object meanwhile.
const MAX_ATTEMPTS: usize = 5;
const MAX_PAGE: usize = 1000;
/// Objects that are read at once, and bytes after which a page ends.
const CHUNK: usize = 16;
const MAX_PAGE_BYTES: usize = 4 << 20;
/// Keys of events are longer by 20 bytes, and the store accepts 512.
const MAX_KEY_BYTES: usize = 490;
const MAX_ARGUMENT_BYTES: usize = 256 << 10;

/// The objects of a class. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Grid {
    store: Store,
    class: Arc<RwLock<Arc<Class>>>,
    turns: Turns,
    functions: Functions,
    counts: Arc<Counts>,
    /// None if the node is the only one of its grid.
    replica: Option<Arc<Replica>>,
    metrics: Arc<Metrics>,
    /// Since when the oldest event of this node waits.
    outbox_since: Arc<Mutex<Option<Instant>>>,
}

/// Whether a commit was made.
enum Committed {
    At(Revision),
    /// Something else has changed the object.
    Conflict,
}

/// Identifies an attempt to change an object, so that its outcome can be found out.
fn new_id() -> String {
    format!("{:016x}", fastrand::u64(..))
}

fn changes_too_often() -> Error {
    Error::Unavailable("the object changes too often".to_owned())
}

fn now() -> i64 {
    Timestamp::now().as_millisecond()
}

impl Grid {
    /// The objects of a store, which nothing else changes.
    pub async fn open(store: Store, class: Class) -> Result<Self, Error> {
        let counts = Arc::new(Counts::read(&store, &class.collections).await?);
        Ok(Self { counts, ..Self::new(store, class) })
    }

    /// The objects of an empty store.
    pub fn new(store: Store, class: Class) -> Self {
        let class = Arc::new(RwLock::new(Arc::new(class)));
        let (turns, functions) = (Turns::default(), Functions::new());
        Self {
            store,
            class,
            turns,
            functions,
            counts: Arc::default(),
            replica: None,
            metrics: Arc::default(),
            outbox_since: Arc::default(),
        }
    }

    /// The objects of a store that several nodes change.
    pub(crate) fn replicated(store: Store, class: Class, replica: Arc<Replica>) -> Self {
        Self { replica: Some(replica), ..Self::new(store, class) }
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

    /// Calls that wait for their turn or have it.
    pub(crate) fn turns(&self) -> usize {
        self.turns.calls()
    }

    /// Resolves when no call has a turn.
    pub(crate) async fn idle(&self) {
        self.turns.idle().await;
    }

    /// Whether this node executes the calls of an object.
    pub(crate) fn owns(&self, object_key: &str) -> bool {
        self.replica.as_ref().is_none_or(|it| it.ownership.owns(object_key))
    }

    /// Adds the check that this node executes the calls of an object.
    fn fenced(&self, transaction: Transaction, object_key: &str) -> Result<Transaction, Error> {
        match &self.replica {
            Some(replica) => replica.fenced(transaction, object_key),
            None => Ok(transaction),
        }
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

    /// Calls a method of an object on this node. The change, and the result for the idempotency key, are stored in
    /// one transaction before this returns.
    pub(crate) async fn invoke_locally(&self, call: &Invocation) -> Result<Outcome, Error> {
        let class = self.class();
        let method = class.method(&call.method, call.caller)?;
        let bytes = serde_json::to_vec(&call.args).map_or(0, |it| it.len());
        if bytes > MAX_ARGUMENT_BYTES {
            let limit = MAX_ARGUMENT_BYTES;
            return Err(Error::TooLarge { what: "the argument", bytes, limit });
        }
        let id = call.idempotency_key.clone().unwrap_or_else(new_id);
        if method.read_only {
            let found = self.read(&class, call.collection.as_deref(), &call.id).await?;
            call.expected.check(found.version())?;
            let state = found.state(&class)?;
            let reply = self.call_function(method, call, &id, &found, &state).await?;
            return Ok(Outcome { result: reply.0, version: found.version(), repeated: false });
        }
        let key = Self::key(&class, call.collection.as_deref(), &call.id)?;
        if call.chain.contains(&key) {
            return Err(Error::Reentrant(call.id.to_string()));
        }
        let _turn = self.turns.take(&key).await?;
        for _ in 0..MAX_ATTEMPTS {
            if let Some(outcome) = self.attempt(&class, method, call, &key, &id).await? {
                return Ok(outcome);
            }
        }
        Err(changes_too_often())
    }

    /// None if something else has changed the object meanwhile.
    async fn attempt(
        &self,
        class: &Class,
        method: &Method,
        call: &Invocation,
        key: &str,
        id: &str,
    ) -> Result<Option<Outcome>, Error> {
        let invocation = &new_id();
        let once =
            call.idempotency_key.as_deref().map(|it| Once::new(call, key, it)).transpose()?;
        if let Some(once) = &once
            && let Some(outcome) = self.earlier(once).await?
        {
            return Ok(Some(outcome));
        }
        let found = self.read(class, call.collection.as_deref(), &call.id).await?;
        call.expected.check(found.version())?;
        let state = found.state(class)?;
        let (result, state) = self.call_function(method, call, id, &found, &state).await?;
        let is_changed = state.as_ref().is_some_and(|it| found.is_other(it));
        let mut transaction = if is_changed {
            let cause = Cause { method: Some(call.method.clone()), depth: call.depth };
            let change = ObjectChange { found: &found, state, invocation, cause };
            self.transaction(class, &change).await?
        } else {
            Transaction::new().check(key, found.check())
        };
        if let Some(once) = &once {
            transaction = once.record(transaction, &result)?;
        }
        if transaction.changes.is_empty() {
            return Ok(Some(Outcome { result, version: found.version(), repeated: false }));
        }
        match self.commit(transaction, &found, invocation).await? {
            Committed::Conflict => Ok(None),
            Committed::At(revision) => {
                let version = if is_changed { Some(revision.0) } else { found.version() };
                Ok(Some(Outcome { result, version, repeated: false }))
            }
        }
    }

    /// The outcome of an earlier call with the same idempotency key.
    async fn earlier(&self, once: &Once) -> Result<Option<Outcome>, Error> {
        for key in once.keys(once.began) {
            let Some(entry) = self.store.get(&key).await? else { continue };
            let record: InvocationRecord = decode(&key, &entry.value)?;
            if record.fingerprint != once.fingerprint {
                return Err(Error::IdempotencyKeyReused);
            }
            return Ok(Some(Outcome { result: record.result, version: None, repeated: true }));
        }
        Ok(None)
    }

    /// `id` is the same for each attempt of a call.
    async fn call_function(
        &self,
        method: &Method,
        call: &Invocation,
        id: &str,
        found: &Found,
        state: &State,
    ) -> Result<(Value, Option<State>), Error> {
        let version = found.version().unwrap_or_default();
        let object = CalledObject { id: call.id.as_str(), version, state };
        let chain: Vec<_> = call.chain.iter().chain([&found.key]).map(String::as_str).collect();
        let call_of = Call {
            method: &call.method,
            object,
            args: &call.args,
            invocation: id,
            depth: call.depth,
            chain: chain.join(","),
            headers: &call.headers,
        };
        let mut reply = self.functions.call(method, &call_of).await?;
        let state = reply.state(&call.id)?;
        Ok((reply.result, state))
    }

    /// Changes an object to what `change` returns, or deletes it if that is none.
    async fn write(
        &self,
        collection: Option<&str>,
        id: &ObjectId,
        expected: Expected,
        change: impl Fn(&Found, &Class) -> Result<Option<State>, Error>,
    ) -> Result<(Revision, Option<State>), Error> {
        let class = self.class();
        let key = Self::key(&class, collection, id)?;
        let _turn = self.turns.take(&key).await?;
        for _ in 0..MAX_ATTEMPTS {
            let found = self.read(&class, collection, id).await?;
            expected.check(found.version())?;
            let state = change(&found, &class)?;
            let (invocation, cause) = (&new_id(), Cause::default());
            let change = ObjectChange { found: &found, state, invocation, cause };
            let transaction = self.transaction(&class, &change).await?;
            if let Committed::At(revision) = self.commit(transaction, &found, invocation).await? {
                return Ok((revision, change.state));
            }
        }
        Err(changes_too_often())
    }

    /// The transaction of a change, with its event.
    async fn transaction(
        &self,
        class: &Class,
        change: &ObjectChange<'_>,
    ) -> Result<Transaction, Error> {
        let ObjectChange { found, state, invocation, .. } = change;
        let key = &found.key;
        let event = change.event(class);
        let number = match &found.record {
            Some(record) => record.next_event,
            // Events of a deleted object with the same id may be left.
            None => self.next_event(key).await?,
        };
        let mut transaction = Transaction::new().check(key, found.check());
        transaction = match state {
            None => transaction.delete(key),
            Some(state) => {
                class.check(state)?;
                let changed = now();
                let record = ObjectRecord {
                    state: state.clone(),
                    created: found.record.as_ref().map_or(changed, |it| it.created),
                    changed,
                    last: (*invocation).to_owned(),
                    next_event: number + u64::from(event.is_some()),
                };
                transaction.put(key, encode(&record)?)
            }
        };
        if let Some(event) = event {
            let event_key = event_key(key, number);
            transaction = transaction.check(&event_key, Check::Absent);
            transaction = transaction.put(event_key, encode(&event)?);
        }
        Ok(transaction)
    }

    async fn next_event(&self, object_key: &str) -> Result<u64, Error> {
        let pending = self.store.list(&events_prefix(object_key)).await?;
        let last = pending.entries.last().and_then(|it| parse_event_key(&it.key));
        Ok(last.map_or(0, |(_, number)| number + 1))
    }

    /// Calls the next trigger of an event. Its change and the progress of the event are one transaction, so
    /// that the change is made once. The object may have changed since the event, or may be gone.
    pub(crate) async fn trigger(&self, event: &StoredEvent) -> Result<(), Error> {
        let class = self.class();
        let EventRecord { collection, cause, kind, at, .. } = &event.record;
        let Some(name) = event.record.triggers.first() else { return self.advance(event).await };
        // The trigger was removed.
        let Some(method) = class.methods.get(name) else { return self.advance(event).await };
        let call = Invocation {
            collection: Some(collection.clone()),
            id: ObjectId::parse(&event.record.id)?,
            method: name.clone(),
            args: json!({"event": kind, "at": at, "cause": cause}),
            caller: Access::Private,
            idempotency_key: None,
            expected: Expected::Anything,
            depth: cause.depth + 1,
            chain: Vec::new(),
            headers: Vec::new(),
        };
        let key = Self::key(&class, Some(collection), &call.id)?;
        let _turn = self.turns.take_always(&key).await?;
        let found = self.read(&class, Some(collection), &call.id).await?;
        let attempt = new_id();
        let (_, state) = match found.state(&class) {
            Ok(state) => self.call_function(method, &call, &event.id(), &found, &state).await?,
            // It has no state that could change.
            Err(_) => {
                let empty = State::new();
                let called = self.call_function(method, &call, &event.id(), &found, &empty).await?;
                (called.0, None)
            }
        };
        let is_created = state.is_some() && found.record.is_none();
        let transaction = match state.filter(|it| found.is_other(it)) {
            None => Transaction::new(),
            Some(state) => {
                let cause = Cause { method: Some(name.clone()), depth: call.depth };
                let (state, invocation) = (Some(state), attempt.as_str());
                let change = ObjectChange { found: &found, state, invocation, cause };
                self.transaction(&class, &change).await?
            }
        };
        match self.store.commit(self.fenced(event.advanced(transaction)?, &key)?).await {
            Ok(_) => {
                self.count_change(&found, is_created.then_some(true));
                Ok(())
            }
            // The event is read again after a conflict.
            Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Skips a trigger.
    async fn advance(&self, event: &StoredEvent) -> Result<(), Error> {
        let (object_key, _) = parse_event_key(&event.key).unwrap_or_default();
        let transaction = self.fenced(event.advanced(Transaction::new())?, object_key)?;
        match self.store.commit(transaction).await {
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Commits a change of an object. Whether it was made is found out if the store doesn't know.
    async fn commit(
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
    fn count_change(&self, found: &Found, change: Option<bool>) {
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

    /// Forgets results for idempotency keys that are too old to be repeated.
    pub async fn forget_results(&self) -> Result<(), Error> {
        let oldest = period(now()) - 1;
        loop {
            let page = self.store.range(INVOCATIONS, None, MAX_OPERATIONS).await?;
            let keys = page.entries.into_iter().map(|it| it.key);
            let old: Vec<_> = keys.take_while(|key| period_of_key(key) < Some(oldest)).collect();
            if old.is_empty() {
                return Ok(());
            }
            self.store
                .commit(old.into_iter().fold(Transaction::new(), Transaction::delete))
                .await?;
        }
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

    async fn read(
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

#[cfg(test)]
mod tests;
