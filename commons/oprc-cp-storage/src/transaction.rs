use std::collections::HashSet;

use bytes::Bytes;

use crate::{Change, Error, Fence, Lease, Result, Revision, key::check_key};

/// The maximum number of checks, of changes, and of reads, in a transaction. etcd accepts 128 of each.
pub const MAX_OPERATIONS: usize = 100;
/// The maximum size of the keys and values of a transaction. etcd accepts 1.5 MiB.
pub const MAX_BYTES: usize = 1 << 20;

/// A precondition of a transaction on one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    Absent,
    Exists,
    /// The entry exists and is unchanged since it was read.
    Version(Revision),
}

impl Check {
    /// `version` is `None` if the entry doesn't exist.
    pub fn holds(self, version: Option<Revision>) -> bool {
        match self {
            Self::Absent => version.is_none(),
            Self::Exists => version.is_some(),
            Self::Version(expected) => version == Some(expected),
        }
    }
}

/// Changes that are applied together or not at all.
#[derive(Debug, Clone, Default)]
pub struct Transaction {
    pub checks: Vec<(String, Check)>,
    /// At most one for each key.
    pub changes: Vec<Change>,
    /// The lease that the caller must still hold.
    pub fence: Option<Fence>,
}

pub(crate) fn check_operations(count: usize, what: &str) -> Result<()> {
    if count > MAX_OPERATIONS {
        let what = format!("a transaction of {count} {what}");
        return Err(Error::TooLarge { what, limit: MAX_OPERATIONS.to_string() });
    }
    Ok(())
}

impl Transaction {
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn check(mut self, key: impl Into<String>, check: Check) -> Self {
        self.checks.push((key.into(), check));
        self
    }

    #[must_use]
    pub fn put(mut self, key: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.changes.push(Change::Put { key: key.into(), value: value.into() });
        self
    }

    /// Deletes an entry. Deleting a missing one succeeds unless a check is added.
    #[must_use]
    pub fn delete(mut self, key: impl Into<String>) -> Self {
        self.changes.push(Change::Delete { key: key.into() });
        self
    }

    /// Makes the transaction fail with [`Error::LeaseLost`] once the lease is lost.
    #[must_use]
    pub fn fenced(mut self, lease: &Lease) -> Self {
        self.fence = Some(lease.fence());
        self
    }

    /// The limits are the same for all back ends.
    pub(crate) fn check_limits(&self) -> Result<()> {
        check_operations(self.checks.len(), "checks")?;
        check_operations(self.changes.len(), "changes")?;
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

    /// The size of the keys and values, at most [`MAX_BYTES`].
    pub fn bytes(&self) -> usize {
        let checks: usize = self.checks.iter().map(|(key, _)| key.len()).sum();
        checks + self.changes.iter().map(Change::bytes).sum::<usize>()
    }

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
