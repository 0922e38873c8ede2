//! Ids of new objects.

use sha2::{Digest as _, Sha256};

use crate::{Error, ObjectId, class::Class};

/// A member with one of 4096 partitions finds an id almost surely.
const MAX_ATTEMPTS: u32 = 100_000;

/// The id of a new object of this member. The same idempotency key gives the same id.
pub(super) fn new_object_id(
    class: &Class,
    collection: Option<&str>,
    key: Option<&[u8]>,
) -> Result<ObjectId, Error> {
    let collection = class.collection(collection)?;
    let has_partitions = class.membership.as_ref().is_none_or(|it| it.has_partitions(collection));
    let attempts = if has_partitions { MAX_ATTEMPTS } else { 1 };
    let mut elsewhere = None;
    for attempt in 0..attempts {
        let id = ObjectId::parse(&candidate(key, attempt))?;
        match class.check_member(collection, id.as_str()) {
            Ok(()) => return Ok(id),
            Err(error @ Error::OtherMember(_)) => elsewhere = Some(error),
            Err(error) => return Err(error),
        }
    }
    let exhausted = || Error::Unavailable("no id of this member was found".to_owned());
    Err(elsewhere.filter(|_| !has_partitions).unwrap_or_else(exhausted))
}

/// 32 hexadecimal digits.
fn candidate(key: Option<&[u8]>, attempt: u32) -> String {
    let Some(key) = key else { return format!("{:032x}", fastrand::u128(..)) };
    let mut digest = Sha256::new_with_prefix(key);
    if attempt > 0 {
        digest.update([0]);
        digest.update(attempt.to_be_bytes());
    }
    hex::encode(digest.finalize().get(..16).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class(owners: &[i32]) -> Class {
        let class = json!({
            "collections": ["c"],
            "membership": {
                "member": 1,
                "members": [{"id": 1, "cluster": "east"}, {"id": 2, "cluster": "west"}],
                "partitions": {"c": owners},
            },
        });
        serde_json::from_value(class).unwrap()
    }

    #[test]
    fn ids_are_in_partitions_of_the_member() {
        let mut owners = vec![2; 4096];
        owners[4095] = 1;
        let class = class(&owners);
        let id = new_object_id(&class, None, None).unwrap();
        class.check_member("c", id.as_str()).unwrap();
        let by_key = |key: &[u8]| new_object_id(&class, None, Some(key)).unwrap();
        class.check_member("c", by_key(b"k").as_str()).unwrap();
        assert_eq!(by_key(b"k"), by_key(b"k"));
        assert_ne!(by_key(b"k"), by_key(b"l"));
    }

    #[test]
    fn a_member_without_partitions_creates_no_objects() {
        let error = new_object_id(&class(&[2]), None, None).unwrap_err();
        assert_eq!(error.reason(), "OTHER_MEMBER");
    }
}
