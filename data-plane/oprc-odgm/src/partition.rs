//! Partitions of objects.

use sha2::{Digest as _, Sha256};

/// The first bytes of a digest. Nodes and members must agree on it, and stored objects rely on it.
pub(crate) fn hash(parts: &[&str]) -> u64 {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
        hash.update([0]);
    }
    let digest = hash.finalize();
    digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The partition of an object.
pub(crate) fn partition(id: &str, count: u32) -> u32 {
    u32::try_from(hash(&[id]) % u64::from(count.max(1))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Other values would move the objects of deployed classes to other members.
    #[test]
    fn partitions_of_ids_never_change() {
        let found = ["a", "b", "cart-17", "singleton", "é"].map(|id| partition(id, 16));
        assert_eq!(found, [4, 3, 1, 11, 13]);
        assert_eq!(partition("a", 1), 0);
    }

    proptest! {
        #[test]
        fn a_partition_is_one_of_the_collections(id in "[^/]{1,50}", count in 1u32..4096) {
            prop_assert!(partition(&id, count) < count);
        }
    }
}
