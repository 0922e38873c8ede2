//! Page sizes of lists.

use crate::error::Error;

pub(crate) const MAX_PAGE_SIZE: usize = 500;
const DEFAULT_PAGE_SIZE: usize = 100;

/// The page size of a `limit` parameter.
pub(crate) fn page_size(limit: Option<usize>) -> Result<usize, Error> {
    match limit {
        None => Ok(DEFAULT_PAGE_SIZE),
        Some(limit @ 1..=MAX_PAGE_SIZE) => Ok(limit),
        Some(_) => {
            let message = format!("must be from 1 to {MAX_PAGE_SIZE}");
            Err(Error::Parameter { field: "limit", message })
        }
    }
}
