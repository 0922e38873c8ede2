//! What changes in a store.

use std::fmt;

use bytes::Bytes;

use crate::Revision;

/// A change of one entry.
#[derive(Clone, PartialEq, Eq)]
pub enum Change {
    /// It has this value now.
    Put {
        /// Its key.
        key: String,
        /// What is stored.
        value: Bytes,
    },
    /// It is no more.
    Delete {
        /// Its key.
        key: String,
    },
}

impl Change {
    /// The key of the entry.
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }

    /// The new value, unless the entry is deleted.
    pub fn value(&self) -> Option<&Bytes> {
        match self {
            Self::Put { value, .. } => Some(value),
            Self::Delete { .. } => None,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.key().len() + self.value().map_or(0, Bytes::len)
    }
}

impl fmt::Debug for Change {
    // Values may be secret, and are long.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put { key, value } => write!(formatter, "put {key} ({} bytes)", value.len()),
            Self::Delete { key } => write!(formatter, "delete {key}"),
        }
    }
}

/// The changes of one transaction, as far as a watch is concerned with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The store's, once they were made: the version of every entry that they put.
    pub revision: Revision,
    /// In the order of the transaction, or of the keys.
    pub changes: Vec<Change>,
}

impl Commit {
    /// What it takes up, roughly.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.changes.iter().map(|c| size_of::<Change>() + c.bytes()).sum::<usize>()
    }
}
