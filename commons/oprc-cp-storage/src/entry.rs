//! What a store holds.

use std::fmt;

use bytes::Bytes;

/// How often a store had been changed. It only grows, and never begins anew.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A key with its value.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// Parts separated by `/`.
    pub key: String,
    /// What is stored.
    pub value: Bytes,
    /// The revision that it was written with. An entry that was deleted and made again has another.
    pub version: Revision,
}

impl fmt::Debug for Entry {
    // Values may be secret, and are long.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({} bytes, version {})", self.key, self.value.len(), self.version)
    }
}

/// A part of a range, as it was at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// In the order of their keys' bytes.
    pub entries: Vec<Entry>,
    /// The store's, when it was read.
    pub revision: Revision,
    /// Whether there are entries past the last one.
    pub more: bool,
}
