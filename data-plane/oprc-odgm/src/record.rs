//! Records of the store and their keys.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::{
    Error, ObjectId,
    class::{Cause, ChangeKind, State},
};

/// An object as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ObjectRecord {
    pub(crate) state: State,
    /// Milliseconds since 1970.
    pub(crate) created: i64,
    pub(crate) changed: i64,
    /// The invocation that changed it last.
    pub(crate) last: String,
    /// The number of its next event.
    #[serde(default)]
    pub(crate) next_event: u64,
    /// How often it was changed since it was created.
    #[serde(default)]
    pub(crate) changes: u64,
}

/// A change of an object whose triggers haven't been called.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct EventRecord {
    pub(crate) collection: String,
    pub(crate) id: String,
    pub(crate) kind: ChangeKind,
    pub(crate) cause: Cause,
    /// Methods that are still to be called, in this order.
    pub(crate) triggers: Vec<String>,
    /// Milliseconds since 1970.
    pub(crate) at: i64,
}

/// Why an event is parked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ParkedRecord {
    pub(crate) trigger: String,
    pub(crate) reason: String,
    pub(crate) attempts: u32,
    /// Milliseconds since 1970.
    pub(crate) at: i64,
}

/// The prefix of the keys of all objects.
pub(crate) const OBJECTS: &str = "o/";
/// The prefix of the keys of all events.
pub(crate) const EVENTS: &str = "e/";
/// The prefix of the keys of all parked events.
pub(crate) const PARKED: &str = "x/";

/// Keys are in the order of events.
pub(crate) fn event_key(object_key: &str, number: u64) -> String {
    format!("{}{number:016x}", events_prefix(object_key))
}

pub(crate) fn events_prefix(object_key: &str) -> String {
    format!("{EVENTS}{object_key}/")
}

/// The key of the object, and the number of the event.
pub(crate) fn parse_event_key(key: &str) -> Option<(&str, u64)> {
    let (object, number) = key.strip_prefix(EVENTS)?.rsplit_once('/')?;
    Some((object, u64::from_str_radix(number, 16).ok()?))
}

pub(crate) fn parked_key(event_key: &str) -> String {
    format!("{PARKED}{event_key}")
}

/// The key of a random number that identifies the store, and thereby its versions.
pub(crate) const EPOCH: &str = "m/epoch";
/// The key of the secret for call tokens.
pub(crate) const CALL_KEY: &str = "m/call-key";
/// The prefix of the keys of all runs of macros.
pub(crate) const RUNS: &str = "r/";

pub(crate) fn run_key(run: &str) -> String {
    format!("{RUNS}{run}")
}

/// A call with an idempotency key, and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct InvocationRecord {
    /// Of method and arguments.
    pub(crate) fingerprint: String,
    pub(crate) result: Value,
    /// Milliseconds since 1970.
    pub(crate) at: i64,
}

/// Calls with an idempotency key are remembered by periods of this many milliseconds: in the period of
/// the call and in the next.
pub(crate) const PERIOD: i64 = 10 * 60 * 1000;

/// The key of an object; also that of its turns.
pub(crate) fn object_key(collection: &str, id: &ObjectId) -> String {
    format!("{}{id}", objects_prefix(collection))
}

pub(crate) fn objects_prefix(collection: &str) -> String {
    format!("{OBJECTS}{}/", escape_collection(collection))
}

/// Names of collections may contain `/`, which separates the parts of keys.
pub(crate) fn escape_collection(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F")
}

/// The period of a time.
pub(crate) fn period(millis: i64) -> i64 {
    millis.div_euclid(PERIOD)
}

/// The prefix of the keys of all invocations.
pub(crate) const INVOCATIONS: &str = "i/";

/// Keys are in the order of periods.
pub(crate) fn invocation_key(period: i64, object_key: &str, idempotency_key: &str) -> String {
    let digest = Sha256::digest(format!("{object_key}/{idempotency_key}"));
    format!("{INVOCATIONS}{period:012}/{}", short_digest(&digest))
}

/// Half of a digest still has no collisions, and many are stored.
pub(crate) fn short_digest(digest: &[u8]) -> String {
    hex::encode(digest.get(..16).unwrap_or(digest))
}

/// The period of the key of an invocation.
pub(crate) fn period_of_key(key: &str) -> Option<i64> {
    key.strip_prefix(INVOCATIONS)?.split('/').next()?.parse().ok()
}

pub(crate) fn encode(record: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(record).map_err(|error| Error::Corrupt(error.to_string()))
}

pub(crate) fn decode<T: DeserializeOwned>(key: &str, value: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(value).map_err(|error| Error::Corrupt(format!("{key}: {error}")))
}
