//! Why a call failed.

use crate::Revision;

/// What a call of a store gives.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A check of a transaction doesn't hold; nothing was changed.
    #[error("{key} {}", conflict(*version))]
    Conflict {
        /// The first key whose check doesn't hold.
        key: String,
        /// Its version, if there is such an entry.
        version: Option<Revision>,
    },
    /// Another process drives the store.
    #[error("{name} is driven by {by}")]
    Owned {
        /// What can't be owned.
        name: String,
        /// Who owns it, in its own words.
        by: String,
    },
    /// The caller drives the store no longer; nothing was changed.
    #[error("{name} is no longer driven by this process")]
    NotOwner {
        /// What was owned.
        name: String,
    },
    /// A watch can't tell everything that happened since: its reader begins anew with a list.
    #[error("the history of the store has a gap here: read it anew")]
    Gap,
    /// Nothing was changed, and the same call may succeed later.
    #[error("the store is unavailable: {reason}")]
    Unavailable {
        /// What is wrong.
        reason: String,
    },
    /// Whether anything was changed isn't known: either all of it or nothing. Read, then decide.
    #[error("it isn't known whether the store has changed: {reason}")]
    Unknown {
        /// What is wrong.
        reason: String,
    },
    /// More than a store takes; nothing was changed.
    #[error("{what} is more than {limit}")]
    TooLarge {
        /// What is too large.
        what: String,
        /// The limit, with its unit.
        limit: String,
    },
    /// What was asked makes no sense; nothing was changed.
    #[error("{reason}")]
    Invalid {
        /// What is wrong.
        reason: String,
    },
    /// The store doesn't let this process in, or this process doesn't trust the store.
    #[error("the store denies access: {reason}")]
    Denied {
        /// What is wrong; never a secret.
        reason: String,
    },
    /// The store isn't one of ours, or is damaged.
    #[error("the store is damaged: {reason}")]
    Corrupt {
        /// What is wrong.
        reason: String,
    },
}

// By value: they are for `map_err`.
#[allow(clippy::needless_pass_by_value)]
impl Error {
    /// Whether the same call may simply be made again.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    pub(crate) fn unavailable(reason: impl ToString) -> Self {
        Self::Unavailable { reason: reason.to_string() }
    }

    pub(crate) fn unknown(reason: impl ToString) -> Self {
        Self::Unknown { reason: reason.to_string() }
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
        None => "isn't there".to_owned(),
    }
}
