//! Failures of calls to the grid.

use oprc_cp_storage::Error as StoreError;
use serde::{Deserialize, Serialize};

use crate::static_text::{self, StaticText};

/// Why a call failed. Unless a variant says otherwise, nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Error {
    #[error("the object id {0}")]
    InvalidId(String),
    #[error("there is no collection {0:?}")]
    UnknownCollection(String),
    #[error("there is no object {0:?}")]
    NotFound(String),
    #[error("there is no method {0:?}")]
    UnknownMethod(String),
    /// The caller may not call the method.
    #[error("the method {method:?} is {access}")]
    Forbidden {
        method: String,
        #[serde(deserialize_with = "static_text::deserialize")]
        access: StaticText,
    },
    /// The caller's precondition doesn't hold.
    #[error("the object {}", present(*version))]
    Changed {
        /// None if there is no object.
        version: Option<u64>,
    },
    #[error("the state is invalid: {}", problems.join("; "))]
    InvalidState { problems: Vec<String> },
    #[error("{what} has {bytes} bytes, at most {limit} are allowed")]
    TooLarge {
        #[serde(deserialize_with = "static_text::deserialize")]
        what: StaticText,
        bytes: usize,
        limit: usize,
    },
    #[error("the idempotency key {0}")]
    InvalidIdempotencyKey(String),
    /// The same idempotency key was used for another call.
    #[error("the idempotency key was used for another call of this object")]
    IdempotencyKeyReused,
    /// The call comes from a method of the same object, which has the turn.
    #[error("the call comes from a call of the same object, {0:?}")]
    Reentrant(String),
    /// Too many calls wait for the object.
    #[error("{0} calls wait for the object already")]
    Overloaded(usize),
    /// The function refused the call, with a status from 400 to 499.
    #[error("the function refused the call: {detail}")]
    Refused { status: u16, detail: String },
    #[error("the function failed with status {0}")]
    FunctionFailed(u16),
    #[error("the function gave no response within {0} ms")]
    FunctionTimeout(u64),
    #[error("the function is not reachable: {0}")]
    FunctionUnreachable(String),
    #[error("the response of the function is invalid: {0}")]
    InvalidResponse(String),
    /// The store will never accept the change.
    #[error("it cannot be stored: {0}")]
    Unstorable(String),
    /// This node doesn't own the partition with the key: its owner has to execute the call.
    #[error("this node does not own the partition {0}")]
    NotOwner(String),
    /// The same call may succeed later.
    #[error("the grid is unavailable: {0}")]
    Unavailable(String),
    /// Either all of a change was made or nothing.
    #[error("the outcome is unknown: {0}")]
    UnknownOutcome(String),
    /// A record of the store isn't readable.
    #[error("the store is corrupt: {0}")]
    Corrupt(String),
}

fn present(version: Option<u64>) -> String {
    match version {
        Some(version) => format!("has version {version}"),
        None => "does not exist".to_owned(),
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        let text = error.to_string();
        match error {
            StoreError::UnknownOutcome { reason } => Self::UnknownOutcome(reason),
            StoreError::Corrupt { .. } => Self::Corrupt(text),
            StoreError::TooLarge { .. } | StoreError::Invalid { .. } => Self::Unstorable(text),
            _ => Self::Unavailable(text),
        }
    }
}
