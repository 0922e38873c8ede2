use std::fmt;

use bytes::Bytes;

/// The number of changes that a store has seen. It only grows, and is never reset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// Parts separated by `/`.
    pub key: String,
    pub value: Bytes,
    /// The revision of the last write. An entry that is deleted and created again gets a new one.
    pub version: Revision,
}

impl fmt::Debug for Entry {
    // Values may be secret, and they are long.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({} bytes, version {})", self.key, self.value.len(), self.version)
    }
}

/// A part of a range, read at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// In the order of their keys' bytes.
    pub entries: Vec<Entry>,
    /// The revision of the store at which the page was read.
    pub revision: Revision,
    /// Whether there are entries after the last one.
    pub more: bool,
}
