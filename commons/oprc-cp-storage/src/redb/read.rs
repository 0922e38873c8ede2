//! Reads, each at one snapshot.

use std::ops::Bound;

use bytes::Bytes;
use redb::{Database, ReadableDatabase as _};

use super::tables::{ABOUT, ENTRIES, revision};
use crate::{Entry, Page, Revision, key};

pub(super) fn get(database: &Database, key: String) -> Result<Option<Entry>, redb::Error> {
    let entries = database.begin_read()?.open_table(ENTRIES)?;
    let found = entries.get(key.as_str())?;
    Ok(found.map(|found| entry(key, found.value())))
}

pub(super) fn range(
    database: &Database,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Page, redb::Error> {
    let snapshot = database.begin_read()?;
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
