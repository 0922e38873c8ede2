//! What callers send to the grid and get from it.

use hyper::header::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expected {
    #[default]
    Anything,
    Absent,
    Exists,
    Version(u64),
}

impl Expected {
    pub(crate) fn check(self, version: Option<u64>) -> Result<(), Error> {
        let holds = match self {
            Self::Anything => true,
            Self::Absent => version.is_none(),
            Self::Exists => version.is_some(),
            Self::Version(expected) => version == Some(expected),
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
    /// Identifies the call, so that its change is made at most once.
    pub idempotency_key: Option<String>,
    /// What the call expects of the object.
    pub expected: Expected,
    /// How many triggers led to the call.
    pub depth: u32,
    /// The objects whose methods led to the call.
    pub chain: Vec<String>,
    /// Headers for the function, such as the trace context.
    #[serde(with = "crate::header_list")]
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub result: Value,
    /// The version of the object afterwards; none if an earlier result is repeated.
    pub version: Option<u64>,
    /// Whether this is the result of an earlier call with the same idempotency key.
    pub repeated: bool,
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectPage {
    pub objects: Vec<Object>,
    /// The id after which the next page starts; none after the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
