//! Reads, each at one snapshot.

use std::{ops::Bound, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use redb::{Database, ReadTransaction, ReadableDatabase as _};
use tokio::task::spawn_blocking;

use super::tables::{ABOUT, ENTRIES, revision};
use crate::{Entry, Error, Page, Result as StoreResult, Revision, key, snapshot::ReadSnapshot};

/// The entries of several readers, which share a snapshot.
pub(super) fn get_many(
    database: &Database,
    readers: Vec<Vec<String>>,
) -> Result<Vec<Vec<Option<Entry>>>, redb::Error> {
    let entries = database.begin_read()?.open_table(ENTRIES)?;
    let get = |key: String| {
        let found = entries.get(key.as_str())?;
        Ok(found.map(|found| entry(key, found.value())))
    };
    readers.into_iter().map(|keys| keys.into_iter().map(get).collect()).collect()
}

pub(super) fn range(
    database: &Database,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Page, redb::Error> {
    range_of(&database.begin_read()?, prefix, after, limit)
}

/// Iterates over keys and sizes only.
pub(super) fn count(database: &Database, prefix: &str) -> Result<u64, redb::Error> {
    let table = database.begin_read()?.open_table(ENTRIES)?;
    let mut count = 0;
    for found in table.range::<&str>((key::start(prefix, None), Bound::Unbounded))? {
        if !found?.0.value().starts_with(prefix) {
            break;
        }
        count += 1;
    }
    Ok(count)
}

/// Keeps the pages of the file that it needs until it is dropped.
pub(super) struct RedbSnapshot {
    pub(super) revision: Revision,
    transaction: Arc<ReadTransaction>,
}

impl RedbSnapshot {
    pub(super) fn open(database: &Database) -> Result<Self, redb::Error> {
        let transaction = database.begin_read()?;
        let revision = revision(&transaction.open_table(ABOUT)?)?;
        Ok(Self { revision, transaction: Arc::new(transaction) })
    }
}

#[async_trait]
impl ReadSnapshot for RedbSnapshot {
    async fn range(&self, prefix: &str, after: Option<&str>, limit: usize) -> StoreResult<Page> {
        let transaction = self.transaction.clone();
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        let read = move || range_of(&transaction, &prefix, after.as_deref(), limit);
        spawn_blocking(read).await.map_err(Error::unavailable)?.map_err(Error::unavailable)
    }
}

fn range_of(
    snapshot: &ReadTransaction,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Page, redb::Error> {
    let revision = revision(&snapshot.open_table(ABOUT)?)?;
    let mut page = Page { entries: Vec::new(), revision, more: false };
    let table = snapshot.open_table(ENTRIES)?;
    for found in table.range::<&str>((key::start(prefix, after), Bound::Unbounded))? {
        let (key, found) = found?;
        if !key.value().starts_with(prefix) {
            break;
        }
        if page.entries.len() == limit {
            page.more = true;
            break;
        }
        page.entries.push(entry(key.value().to_owned(), found.value()));
    }
    Ok(page)
}

fn entry(key: String, (version, value): (u64, &[u8])) -> Entry {
    Entry { key, value: Bytes::copy_from_slice(value), version: Revision(version) }
}
