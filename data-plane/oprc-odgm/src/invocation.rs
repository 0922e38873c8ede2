//! What callers send to the grid and get from it.

use hyper::header::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::{
    Error, ObjectId,
    class::{Access, State},
};

/// An object with its version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Object {
    pub id: String,
    pub version: u64,
    pub state: State,
}

/// What a write expects of the object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expected {
    #[default]
    Anything,
    Absent,
    Exists,
    /// One of these versions; 0 is that of an object that doesn't exist.
    OneOf(Vec<u64>),
}

impl Expected {
    pub(crate) fn check(&self, version: Option<u64>) -> Result<(), Error> {
        let holds = match self {
            Self::Anything => true,
            Self::Absent => version.is_none(),
            Self::Exists => version.is_some(),
            Self::OneOf(expected) => expected.contains(&version.unwrap_or_default()),
        };
        if holds { Ok(()) } else { Err(Error::Changed { version }) }
    }
}

/// A call of a method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Invocation {
    pub collection: Option<String>,
    pub id: ObjectId,
    pub method: String,
    pub args: Value,
    pub caller: Access,
    /// Identifies the call, so that its change is stored at most once.
    pub idempotency_key: Option<String>,
    /// What the call expects of the object.
    pub expected: Expected,
    pub origin: CallOrigin,
    /// Headers for the function, such as the trace context.
    #[serde(with = "crate::header_list")]
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl Invocation {
    /// A call by a client outside of the grid.
    pub fn new(id: ObjectId, method: impl Into<String>, args: Value, caller: Access) -> Self {
        Self {
            collection: None,
            id,
            method: method.into(),
            args,
            caller,
            idempotency_key: None,
            expected: Expected::default(),
            origin: CallOrigin::default(),
            headers: Vec::new(),
        }
    }
}

/// The calls that led to a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallOrigin {
    /// How many triggers led to the call.
    pub depth: u32,
    /// Identifies the objects whose methods led to the call, see [`CallOrigin::mark`].
    pub chain: Vec<String>,
    /// When the outer call ends, in milliseconds since 1970.
    pub expires: Option<i64>,
    /// Call tokens of other grids, which are passed on.
    pub foreign: Vec<String>,
}

/// Calls that may be nested.
const MAX_CHAIN: usize = 16;

impl CallOrigin {
    /// Identifies an object in a chain. Short, because chains are sent in headers.
    pub fn mark(object_key: &str) -> String {
        let digest = Sha256::digest(object_key);
        hex::encode(digest.get(..10).unwrap_or_default())
    }

    pub fn contains(&self, object_key: &str) -> bool {
        !self.chain.is_empty() && self.chain.contains(&Self::mark(object_key))
    }

    /// The origin of nested calls of a call of an object, which must end until it expires.
    pub(crate) fn extended(&self, object_key: &str, expires: i64) -> Result<Self, Error> {
        if self.chain.len() >= MAX_CHAIN {
            return Err(Error::TooDeep(MAX_CHAIN));
        }
        let mut next = self.clone();
        next.chain.push(Self::mark(object_key));
        next.expires = Some(self.expires.map_or(expires, |it| it.min(expires)));
        Ok(next)
    }
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub result: Value,
    /// The version of the object afterwards; none if an earlier result is repeated.
    pub version: Option<u64>,
    /// Whether this is the result of an earlier call with the same idempotency key.
    pub repeated: bool,
    /// Whether triggers that the caller waits for weren't called in time. They will be.
    pub triggers_pending: bool,
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectPage {
    pub objects: Vec<Object>,
    /// The id after which the next page starts; none after the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Objects by id.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ObjectBatch {
    pub objects: Vec<Object>,
    /// Ids of objects that don't exist.
    pub missing: Vec<String>,
    /// Ids that weren't read, because the answer would be too large.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
}
