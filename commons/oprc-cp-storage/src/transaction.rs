//! Changes that are made together or not at all.

use std::collections::HashSet;

use bytes::Bytes;

use crate::{Change, Error, Fence, Ownership, Result, Revision, key::check_key};

/// How many checks a transaction may have, and how many changes: etcd takes 128 of either.
pub const MAX_OPERATIONS: usize = 100;
/// How many bytes the keys and values of a transaction may have: etcd takes half as much again.
pub const MAX_BYTES: usize = 1 << 20;

/// What must hold for a transaction to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// There is no such entry.
    Absent,
    /// There is one.
    Exists,
    /// There is one, and it is as it was read.
    Version(Revision),
}

impl Check {
    /// Whether it holds for an entry with this version.
    pub fn holds(self, version: Option<Revision>) -> bool {
        match self {
            Self::Absent => version.is_none(),
            Self::Exists => version.is_some(),
            Self::Version(wanted) => version == Some(wanted),
        }
    }
}

/// Changes that are made together or not at all, and what must hold for it.
#[derive(Debug, Clone, Default)]
pub struct Transaction {
    /// All must hold.
    pub checks: Vec<(String, Check)>,
    /// At most one for a key.
    pub changes: Vec<Change>,
    /// The caller must still be the owner that it was.
    pub fence: Option<Fence>,
}

impl Transaction {
    /// One that does nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check.
    #[must_use]
    pub fn check(mut self, key: impl Into<String>, check: Check) -> Self {
        self.checks.push((key.into(), check));
        self
    }

    /// Adds an entry, or changes one.
    #[must_use]
    pub fn put(mut self, key: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.changes.push(Change::Put { key: key.into(), value: value.into() });
        self
    }

    /// Deletes an entry; one that isn't there needs a check for that to be told.
    #[must_use]
    pub fn delete(mut self, key: impl Into<String>) -> Self {
        self.changes.push(Change::Delete { key: key.into() });
        self
    }

    /// Makes it fail with [`Error::NotOwner`] once the ownership is lost.
    #[must_use]
    pub fn fenced(mut self, ownership: &Ownership) -> Self {
        self.fence = Some(ownership.fence());
        self
    }

    /// Whether it is one that any store takes.
    pub(crate) fn check_limits(&self) -> Result<()> {
        for (count, what) in [(self.checks.len(), "checks"), (self.changes.len(), "changes")] {
            if count > MAX_OPERATIONS {
                let what = format!("a transaction of {count} {what}");
                return Err(Error::TooLarge { what, limit: MAX_OPERATIONS.to_string() });
            }
        }
        let keys = self.checks.iter().map(|(key, _)| key.as_str());
        keys.chain(self.changes.iter().map(Change::key)).try_for_each(check_key)?;
        let bytes = self.bytes();
        if bytes > MAX_BYTES {
            let what = format!("a transaction of {bytes} bytes");
            return Err(Error::TooLarge { what, limit: format!("{MAX_BYTES} bytes") });
        }
        let mut seen = HashSet::new();
        match self.changes.iter().find(|change| !seen.insert(change.key())) {
            Some(twice) => {
                Err(Error::invalid(format!("a transaction changes {} twice", twice.key())))
            }
            None => Ok(()),
        }
    }

    /// How many bytes its keys and values have: at most [`MAX_BYTES`].
    pub fn bytes(&self) -> usize {
        let checks: usize = self.checks.iter().map(|(key, _)| key.len()).sum();
        checks + self.changes.iter().map(Change::bytes).sum::<usize>()
    }

    /// Whether all checks hold, by the versions that entries have.
    pub(crate) fn check_versions(
        &self,
        mut version: impl FnMut(&str) -> Result<Option<Revision>>,
    ) -> Result<()> {
        for (key, check) in &self.checks {
            let version = version(key)?;
            if !check.holds(version) {
                return Err(Error::Conflict { key: key.clone(), version });
            }
        }
        Ok(())
    }
}
