//! Pages of lists.

use oprc_rest::Page;

use crate::error::Error;

pub(crate) const MAX_PAGE_SIZE: usize = 500;
const DEFAULT_PAGE_SIZE: usize = 100;

/// The page size of a `limit` parameter.
pub(crate) fn page_size(limit: Option<usize>) -> Result<usize, Error> {
    match limit.unwrap_or(DEFAULT_PAGE_SIZE) {
        limit @ 1..=MAX_PAGE_SIZE => Ok(limit),
        _ => Err(Error::parameter("limit", format!("must be from 1 to {MAX_PAGE_SIZE}"))),
    }
}

/// The first `limit` items, with the cursor of the last one if there are more.
pub(crate) fn page<T>(
    items: impl Iterator<Item = T>,
    limit: usize,
    cursor: impl FnOnce(&T) -> String,
) -> Page<T> {
    let mut items: Vec<T> = items.take(limit + 1).collect();
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(cursor);
    Page { items, next }
}
