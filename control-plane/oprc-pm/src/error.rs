//! What can go wrong for those who ask.

use oprc_cp_storage as storage;
use oprc_models::Diagnostics;

/// Why something wasn't done. Nothing was changed then.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was sent is wrong, place by place.
    #[error("{0}")]
    Invalid(Diagnostics),
    /// A parameter is wrong.
    #[error("{field}: {message}")]
    Parameter {
        /// Its name.
        field: &'static str,
        /// What is allowed.
        message: String,
    },
    /// There is no such thing.
    #[error("there is no {what} {name:?}")]
    NotFound {
        /// What kind of thing.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// It can't be done as things are.
    #[error("{detail}")]
    Conflict {
        /// In one word, such as `IN_USE`.
        reason: &'static str,
        /// In one sentence.
        detail: String,
        /// Who or what stands in the way.
        blockers: Vec<String>,
    },
    /// What was asked to be changed isn't any more as it was when it was read.
    #[error("it has changed: it is at {0} now")]
    Changed(String),
    /// It may work another time.
    #[error("{0}")]
    Unavailable(String),
    /// Something that can't be, was.
    #[error("{0}")]
    Internal(String),
}

impl Error {
    /// There is no such thing.
    pub fn not_found(what: &'static str, name: impl Into<String>) -> Self {
        Self::NotFound { what, name: name.into() }
    }
}

impl From<Diagnostics> for Error {
    fn from(faults: Diagnostics) -> Self {
        Self::Invalid(faults)
    }
}

impl From<storage::Error> for Error {
    fn from(error: storage::Error) -> Self {
        match error {
            storage::Error::Conflict { key, .. } => Self::Conflict {
                reason: "RACE",
                detail: format!("{key} was changed by somebody else at the same time"),
                blockers: Vec::new(),
            },
            storage::Error::Invalid { reason } => Self::Internal(reason),
            error @ storage::Error::TooLarge { .. } => {
                Self::Parameter { field: "body", message: error.to_string() }
            }
            error => Self::Unavailable(format!("the store: {error}")),
        }
    }
}
