//! Errors of requests.

use oprc_cp_storage as storage;
use oprc_models::Diagnostics;

/// Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The body is invalid.
    #[error(transparent)]
    Invalid(#[from] Diagnostics),
    #[error("{field}: {message}")]
    Parameter { field: &'static str, message: String },
    #[error("{what} {name:?} not found")]
    NotFound { what: &'static str, name: String },
    #[error("{detail}")]
    Conflict {
        /// Such as `IN_USE`.
        reason: &'static str,
        detail: String,
        /// Names of what prevents it.
        blockers: Vec<String>,
    },
    /// A precondition failed; the current revision or ETag.
    #[error("precondition failed; current version: {0}")]
    Changed(String),
    /// May succeed when retried.
    #[error("{0}")]
    Unavailable(String),
    /// Invariant violated; a bug.
    #[error("{0}")]
    Internal(String),
}

impl Error {
    pub fn not_found(what: &'static str, name: impl Into<String>) -> Self {
        Self::NotFound { what, name: name.into() }
    }

    pub fn parameter(field: &'static str, message: impl Into<String>) -> Self {
        Self::Parameter { field, message: message.into() }
    }

    pub fn conflict(reason: &'static str, detail: impl Into<String>, blockers: &[&str]) -> Self {
        let blockers = blockers.iter().map(ToString::to_string).collect();
        Self::Conflict { reason, detail: detail.into(), blockers }
    }
}

impl From<storage::Error> for Error {
    fn from(error: storage::Error) -> Self {
        match error {
            storage::Error::Conflict { key, .. } => {
                let detail = format!("{key} was changed by another request at the same time");
                Self::conflict("RACE", detail, &[])
            }
            storage::Error::Invalid { reason } => Self::Internal(reason),
            storage::Error::TooLarge { .. } => Self::parameter("body", error.to_string()),
            error => Self::Unavailable(format!("the store: {error}")),
        }
    }
}
