//! Failures of calls to the grid.

use oprc_cp_storage::Error as StoreError;
use serde::{Deserialize, Serialize};

use crate::{
    member::OtherMember,
    static_text::{self, StaticText},
};

/// Why a call failed. Nothing was changed, unless the variant says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Error {
    #[error("the object id {0}")]
    InvalidId(String),
    #[error("there is no collection {0:?}")]
    UnknownCollection(String),
    #[error("there is no object {0:?}")]
    NotFound(String),
    /// Another member of the deployment has the object, if it exists.
    #[error("{0}")]
    OtherMember(Box<OtherMember>),
    #[error("there is no method {0:?}")]
    UnknownMethod(String),
    #[error("there is no reference {0:?}")]
    UnknownReference(String),
    /// The caller lacks access.
    #[error("{what} is {access}")]
    Forbidden {
        what: String,
        #[serde(deserialize_with = "static_text::deserialize")]
        access: StaticText,
    },
    /// The call that the caller belongs to has ended.
    #[error("the call that this call belongs to has ended")]
    CallEnded,
    /// The caller's precondition doesn't hold.
    #[error("the object {}", present(*version))]
    Changed {
        /// None if there is no object.
        version: Option<u64>,
    },
    #[error("the condition of {0:?} is false")]
    ConditionFalse(String),
    /// The condition has no value for this object and these arguments.
    #[error("the condition of {method:?} cannot be evaluated: {reason}")]
    ConditionFailed { method: String, reason: String },
    #[error("the state is invalid: {}", problems.join("; "))]
    InvalidState { problems: Vec<String> },
    #[error("{what} has {bytes} bytes, at most {limit} are allowed")]
    TooLarge {
        #[serde(deserialize_with = "static_text::deserialize")]
        what: StaticText,
        bytes: usize,
        limit: usize,
    },
    #[error("{what} has {count} entries, at most {limit} are allowed")]
    TooMany {
        #[serde(deserialize_with = "static_text::deserialize")]
        what: StaticText,
        count: usize,
        limit: usize,
    },
    #[error("the idempotency key {0}")]
    InvalidIdempotencyKey(String),
    /// The same idempotency key was used for another call.
    #[error("the idempotency key was used for another call of this object")]
    IdempotencyKeyReused,
    /// An earlier call with the same idempotency key hasn't ended.
    #[error("a call with this idempotency key is running")]
    Running,
    /// The call comes from a method of the same object, which has the turn.
    #[error("the call comes from a call of the same object, {0:?}")]
    Reentrant(String),
    #[error("calls are nested more than {0} times")]
    TooDeep(usize),
    /// Too many calls wait for an object or a method.
    #[error("{waiting} calls wait for {what} already")]
    Overloaded {
        #[serde(deserialize_with = "static_text::deserialize")]
        what: StaticText,
        waiting: usize,
    },
    /// The object can't change until its triggers were called.
    #[error("{0} events of the object wait for their triggers")]
    EventsPending(u64),
    /// No further results of calls with an idempotency key can be kept now.
    #[error("results of calls with an idempotency key have {0} bytes already")]
    ResultsFull(u64),
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
    /// The function of a method that must not change the object changed it.
    #[error("the method {0:?} must not change the object, but its function did")]
    Immutable(String),
    /// A call of the grid of another class failed.
    #[error("the grid of the class {class:?} failed with status {status}: {detail}")]
    OtherGrid { class: String, status: u16, detail: String },
    /// A step of a macro failed; the changes of those before it are stored.
    #[error("the step {step:?} failed: {error}")]
    StepFailed { step: String, error: Box<Error> },
    #[error("a reference of the step cannot be resolved: {0}")]
    UnresolvedReference(String),
    /// The call took too long. Steps of a macro before it may be stored.
    #[error("the call was not finished within {0} ms")]
    DeadlineExceeded(u64),
    /// The store will never accept the change.
    #[error("it cannot be stored: {0}")]
    Unstorable(String),
    /// This node doesn't own the partition with the key: its owner has to execute the call.
    #[error("this node does not own the partition {0}")]
    NotOwner(String),
    /// The same call may succeed later.
    #[error("the grid is unavailable: {0}")]
    Unavailable(String),
    /// Either the whole change is stored or nothing.
    #[error("the outcome is unknown: {0}")]
    UnknownOutcome(String),
    /// A record of the store isn't readable.
    #[error("the store is corrupt: {0}")]
    Corrupt(String),
}

impl Error {
    /// For programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::InvalidId(_) => "INVALID_ID",
            Self::UnknownCollection(_) => "UNKNOWN_COLLECTION",
            Self::NotFound(_) => "NOT_FOUND",
            Self::OtherMember(_) => "OTHER_MEMBER",
            Self::UnknownMethod(_) => "UNKNOWN_METHOD",
            Self::UnknownReference(_) => "UNKNOWN_REFERENCE",
            Self::Forbidden { .. } => "FORBIDDEN",
            Self::CallEnded => "CALL_ENDED",
            Self::Changed { .. } => "CHANGED",
            Self::ConditionFalse(_) => "CONDITION_FALSE",
            Self::ConditionFailed { .. } => "CONDITION_FAILED",
            Self::InvalidState { .. } => "INVALID_STATE",
            Self::TooLarge { .. } | Self::TooMany { .. } => "TOO_LARGE",
            Self::InvalidIdempotencyKey(_) => "INVALID_IDEMPOTENCY_KEY",
            Self::IdempotencyKeyReused => "IDEMPOTENCY_KEY_REUSED",
            Self::Running => "RUNNING",
            Self::Reentrant(_) => "REENTRANT",
            Self::TooDeep(_) => "TOO_DEEP",
            Self::Overloaded { .. } => "OVERLOADED",
            Self::EventsPending(_) => "EVENTS_PENDING",
            Self::ResultsFull(_) => "RESULTS_FULL",
            Self::Refused { .. } => "REFUSED_BY_FUNCTION",
            Self::FunctionFailed(_) => "FUNCTION_FAILED",
            Self::FunctionTimeout(_) => "FUNCTION_TIMEOUT",
            Self::FunctionUnreachable(_) => "FUNCTION_UNREACHABLE",
            Self::InvalidResponse(_) => "INVALID_RESPONSE",
            Self::Immutable(_) => "IMMUTABLE",
            Self::OtherGrid { .. } => "OTHER_GRID",
            Self::StepFailed { .. } => "STEP_FAILED",
            Self::UnresolvedReference(_) => "UNRESOLVED_REFERENCE",
            Self::DeadlineExceeded(_) => "DEADLINE_EXCEEDED",
            Self::Unstorable(_) => "UNSTORABLE",
            Self::Unavailable(_) | Self::NotOwner(_) => "UNAVAILABLE",
            Self::UnknownOutcome(_) => "UNKNOWN_OUTCOME",
            Self::Corrupt(_) => "CORRUPT",
        }
    }

    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::FunctionUnreachable(_)
            | Self::FunctionTimeout(_)
            | Self::FunctionFailed(502..=504)
            | Self::Refused { status: 408 | 429, .. }
            | Self::OtherGrid { status: 408 | 429 | 502..=504, .. }
            | Self::Overloaded { .. }
            | Self::EventsPending(_)
            | Self::ResultsFull(_)
            | Self::Running
            | Self::NotOwner(_)
            | Self::Unavailable(_)
            | Self::UnknownOutcome(_) => true,
            Self::StepFailed { error, .. } => error.is_transient(),
            _ => false,
        }
    }
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
