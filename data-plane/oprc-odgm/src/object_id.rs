//! Ids of objects.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Error;

const MAX_BYTES: usize = 200;

/// The id of an object, unique in its collection.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ObjectId(String);

impl ObjectId {
    /// The id of the only object of a class with the state type `SINGLETON`.
    pub const SINGLETON: &str = "singleton";

    /// An id has 1 to 200 bytes, and neither `/` nor control characters.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let invalid = |reason: String| Err(Error::InvalidId(reason));
        if text.is_empty() {
            return invalid("must not be empty".to_owned());
        }
        if text.len() > MAX_BYTES {
            return invalid(format!("has {} bytes, at most {MAX_BYTES} are allowed", text.len()));
        }
        if let Some(bad) = text.chars().find(|it| *it == '/' || it.is_control()) {
            return invalid(format!("must not contain {bad:?}"));
        }
        // Clients remove these from paths.
        if text == "." || text == ".." {
            return invalid(format!("must not be {text:?}"));
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ObjectId {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        Self::parse(&text)
    }
}

impl From<ObjectId> for String {
    fn from(id: ObjectId) -> Self {
        id.0
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_checked() {
        for good in ["a", "cart-17", "é", "a b", "user@example.org", "...", &"x".repeat(200)] {
            assert_eq!(ObjectId::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "a/b", "a\n", "\0", &"x".repeat(201)] {
            assert!(matches!(ObjectId::parse(bad), Err(Error::InvalidId(_))), "{bad:?}");
        }
    }
}
