use crate::Revision;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A check of a transaction failed; nothing was changed.
    #[error("{key} {}", conflict(*version))]
    Conflict {
        /// The first key whose check failed.
        key: String,
        /// `None` if there is no such entry.
        version: Option<Revision>,
    },
    /// Another process holds the lease.
    #[error("{name} is held by {holder}")]
    LeaseHeld { name: String, holder: String },
    /// The caller has lost the lease; nothing was changed.
    #[error("this process no longer holds the lease {name}")]
    LeaseLost { name: String },
    /// A watch has missed changes: list again, then watch from the revision of the list.
    #[error("the watch has missed changes: list again")]
    Gap,
    /// Nothing was changed, and the same call may succeed later.
    #[error("the store is unavailable: {reason}")]
    Unavailable { reason: String },
    /// Either all of a transaction was committed or nothing. Read, then decide.
    #[error("the outcome of the transaction is unknown: {reason}")]
    UnknownOutcome { reason: String },
    /// Nothing was changed.
    #[error("{what} exceeds the limit of {limit}")]
    TooLarge {
        what: String,
        /// With its unit.
        limit: String,
    },
    /// Invalid arguments; nothing was changed.
    #[error("{reason}")]
    Invalid { reason: String },
    /// Authentication or TLS verification failed, on either side.
    #[error("the store denies access: {reason}")]
    Denied {
        /// Never contains a secret.
        reason: String,
    },
    /// The store is damaged or was written by another program.
    #[error("the store is corrupt: {reason}")]
    Corrupt { reason: String },
}

// By value, for `map_err`.
#[allow(clippy::needless_pass_by_value)]
impl Error {
    /// Whether the same call may be repeated.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    pub(crate) fn unavailable(reason: impl ToString) -> Self {
        Self::Unavailable { reason: reason.to_string() }
    }

    pub(crate) fn unknown_outcome(reason: impl ToString) -> Self {
        Self::UnknownOutcome { reason: reason.to_string() }
    }

    pub(crate) fn invalid(reason: impl ToString) -> Self {
        Self::Invalid { reason: reason.to_string() }
    }

    pub(crate) fn denied(reason: impl ToString) -> Self {
        Self::Denied { reason: reason.to_string() }
    }

    pub(crate) fn corrupt(reason: impl ToString) -> Self {
        Self::Corrupt { reason: reason.to_string() }
    }
}

fn conflict(version: Option<Revision>) -> String {
    match version {
        Some(version) => format!("has version {version}"),
        None => "does not exist".to_owned(),
    }
}
