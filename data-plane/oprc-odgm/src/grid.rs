//! The objects of a class.

mod commit;
mod reads;
mod shared_values;
mod writes;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use oprc_cp_storage::Store;
use parking_lot::{Mutex, RwLock};

pub(crate) use self::commit::{Committed, EventBound, Fence, PreparedChange};
use self::shared_values::{call_key, epoch};
use crate::{
    Error, ObjectId,
    active_runs::ActiveRuns,
    call_token::CallTokens,
    class::{Class, StateType},
    counts::Counts,
    event_waiters::EventWaiters,
    function::Functions,
    http_client::HttpClient,
    metrics::Metrics,
    object_change::Found,
    record::{object_key, objects_prefix},
    replica::Replica,
    results::Results,
    turns::Turns,
};

/// Attempts of a call whose commit fails because the object changed meanwhile.
pub(crate) const MAX_ATTEMPTS: usize = 5;
/// Keys of events are longer by 20 bytes, and the store accepts 512.
const MAX_KEY_BYTES: usize = 490;

/// The objects of a class. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Grid {
    store: Store,
    class: Arc<RwLock<Arc<Class>>>,
    /// Of the store, see [`crate::record::EPOCH`].
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

    /// Taken before a call reads the store. Fails if another node executes the calls of the object.
    pub(crate) fn fence(&self, object_key: &str) -> Result<Fence, Error> {
        let owned = self.replica.as_ref().map(|it| it.ownership.fence(object_key));
        owned.transpose().map(Fence)
    }

    /// Nodes of the same grid must have equal ones.
    #[must_use]
    pub fn with_call_tokens(self, tokens: CallTokens) -> Self {
        Self { tokens: Arc::new(tokens), ..self }
    }

    /// Identifies the store of this grid.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
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

    /// The key of an object. Fails if another member of the deployment has it.
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
        class.check_member(collection, id.as_str())?;
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
        Found::decode(collection, id.clone(), key, entry)
    }
}

#[cfg(test)]
mod tests;
