use std::fmt;

use bytes::Bytes;

use crate::Revision;

#[derive(Clone, PartialEq, Eq)]
pub enum Change {
    Put { key: String, value: Bytes },
    Delete { key: String },
}

impl Change {
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }

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
    // Values may be secret, and they are long.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put { key, value } => write!(formatter, "put {key} ({} bytes)", value.len()),
            Self::Delete { key } => write!(formatter, "delete {key}"),
        }
    }
}

/// The changes of one transaction, limited to those under the prefix of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The version of every entry that the transaction put.
    pub revision: Revision,
    /// In the order of the transaction or of the keys.
    pub changes: Vec<Change>,
}

impl Commit {
    /// The approximate size in memory.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.changes.iter().map(|c| size_of::<Change>() + c.bytes()).sum::<usize>()
    }
}
