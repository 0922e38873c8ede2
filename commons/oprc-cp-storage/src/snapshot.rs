//! All entries of a store at one revision.

use std::{collections::BTreeMap, ops::Bound};

use async_trait::async_trait;

use crate::{Entry, Page, Result, Revision, key};

/// All entries of a store at one revision, whatever is written meanwhile.
pub struct Snapshot {
    revision: Revision,
    reader: Box<dyn ReadSnapshot>,
}

/// Implements a [`Snapshot`], which validates all arguments.
#[async_trait]
pub(crate) trait ReadSnapshot: Send + Sync + 'static {
    async fn range(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page>;
}

impl Snapshot {
    pub(crate) fn new(revision: Revision, reader: impl ReadSnapshot) -> Self {
        Self { revision, reader: Box::new(reader) }
    }

    /// A snapshot of entries in memory.
    pub(crate) fn copied(page: Page) -> Self {
        let revision = page.revision;
        let entries = page.entries.into_iter().map(|it| (it.key.clone(), it)).collect();
        Self::new(revision, Copied { revision, entries })
    }

    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Like [`crate::Store::range`], with the same revision for all pages. Fails with
    /// [`crate::Error::Gap`] once the store has dropped the history.
    pub async fn range(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        key::check_range(prefix, after, limit)?;
        self.reader.range(prefix, after, limit).await
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Snapshot({})", self.revision)
    }
}

struct Copied {
    revision: Revision,
    entries: BTreeMap<String, Entry>,
}

#[async_trait]
impl ReadSnapshot for Copied {
    async fn range(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        let range = (key::start(prefix, after), Bound::Unbounded);
        let mut found = self.entries.range::<str, _>(range).map(|(_, entry)| entry);
        let mut found = found.by_ref().take_while(|entry| entry.key.starts_with(prefix));
        let entries = found.by_ref().take(limit).cloned().collect();
        Ok(Page { entries, revision: self.revision, more: found.next().is_some() })
    }
}
