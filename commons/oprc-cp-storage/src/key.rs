//! Validation of keys and names.

use std::ops::Bound;

use crate::{Error, Result};

const MAX_KEY_BYTES: usize = 512;

/// A key consists of non-empty parts separated by `/`.
pub(crate) fn check_key(key: &str) -> Result<()> {
    if key.split('/').any(str::is_empty) {
        return Err(Error::invalid(format!("the key {key:?} has an empty part")));
    }
    check_prefix(key)
}

/// A prefix need not end at a `/`.
pub(crate) fn check_prefix(prefix: &str) -> Result<()> {
    if prefix.len() > MAX_KEY_BYTES {
        let what = format!("a key of {} bytes", prefix.len());
        return Err(Error::TooLarge { what, limit: format!("{MAX_KEY_BYTES} bytes") });
    }
    if prefix.contains(char::is_control) {
        return Err(Error::invalid(format!("the key {prefix:?} has a control character")));
    }
    Ok(())
}

/// Checks the arguments of a page of a range.
pub(crate) fn check_range(prefix: &str, after: Option<&str>, limit: usize) -> Result<()> {
    check_prefix(prefix)?;
    if limit == 0 {
        return Err(Error::invalid("the limit of a page must be at least 1"));
    }
    let Some(after) = after else { return Ok(()) };
    check_prefix(after)?;
    if after.starts_with(prefix) {
        return Ok(());
    }
    Err(Error::invalid(format!("{after:?} does not start with {prefix:?}")))
}

pub(crate) fn check_identity(identity: &str) -> Result<()> {
    if identity.is_empty() || identity.len() > MAX_KEY_BYTES || identity.contains(char::is_control)
    {
        return Err(Error::invalid("an identity must be one line of 1 to 512 bytes"));
    }
    Ok(())
}

pub(crate) fn start<'a>(prefix: &'a str, after: Option<&'a str>) -> Bound<&'a str> {
    match after {
        Some(after) => Bound::Excluded(after),
        None => Bound::Included(prefix),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validates_keys() {
        for good in ["a", "a/b", "packages/é", "a b/c"] {
            check_key(good).unwrap();
        }
        for bad in ["", "/", "/a", "a/", "a//b", "a\n", "a/\0", &"a".repeat(513)] {
            check_key(bad).unwrap_err();
        }
        check_prefix("").unwrap();
        check_prefix("a/").unwrap();
    }
}
