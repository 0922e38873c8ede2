//! What the size of the store's file means for a member.
//!
//! etcd refuses all writes of all members when one of their files has grown to the quota, even if most of
//! the file is unused. Writes that free space, deliver events or replace an owner need the rest of the quota
//! before that, so those of callers are refused earlier.

use oprc_cp_storage::EtcdStatus;
use serde::{Deserialize, Serialize};

/// Shares of the quota in percent.
///
/// In use: a node reports that space is low.
const LOW_SPACE: u64 = 70;
/// In use: a file that has no space for writes of callers has it after it was defragmented.
const DEFRAGMENTABLE: u64 = 85;
/// Size of the file: it is defragmented if most of it is unused.
const LARGE: u64 = 80;
/// Size of the file: it is defragmented unless space is low.
const NEARLY_FULL: u64 = 90;
/// Size of the file: the rest is for writes that callers don't make.
pub(crate) const RESERVE: u64 = 95;

/// What a node reports to the others about its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SpaceReport {
    /// The file has no space for writes of callers.
    pub(crate) is_reserve_used: bool,
    #[serde(default)]
    pub(crate) needs_defragmentation: bool,
    #[serde(default)]
    pub(crate) is_defragmenting: bool,
    /// The file is large, and wasn't defragmented recently.
    #[serde(default)]
    pub(crate) is_large: bool,
    /// Not much of the quota is in use.
    #[serde(default)]
    pub(crate) has_room: bool,
}

/// The file of a member, and the quota that limits its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileSize {
    bytes: u64,
    bytes_in_use: u64,
    quota: u64,
}

impl FileSize {
    pub(crate) fn new(status: &EtcdStatus, quota: u64) -> Self {
        Self { bytes: status.bytes, bytes_in_use: status.bytes_in_use, quota }
    }

    fn is_larger(&self, percent: u64) -> bool {
        self.bytes > self.quota / 100 * percent
    }

    fn uses_more(&self, percent: u64) -> bool {
        self.bytes_in_use > self.quota / 100 * percent
    }

    pub(crate) fn is_low_on_space(&self) -> bool {
        self.uses_more(LOW_SPACE)
    }

    pub(crate) fn is_reserve_used(&self) -> bool {
        self.is_larger(RESERVE)
    }

    pub(crate) fn is_large(&self) -> bool {
        self.is_larger(LARGE)
    }

    /// Whether the file would become much smaller. `is_out_of_space` if etcd refuses writes.
    pub(crate) fn needs_defragmentation(&self, is_out_of_space: bool) -> bool {
        let is_sparse = self.is_large() && self.bytes_in_use < self.bytes / 2;
        let has_room = !self.is_low_on_space();
        match () {
            () if is_out_of_space => self.is_large() && has_room,
            () if self.is_reserve_used() => !self.uses_more(DEFRAGMENTABLE),
            () => is_sparse || (self.is_larger(NEARLY_FULL) && has_room),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: u64, bytes_in_use: u64) -> FileSize {
        FileSize { bytes, bytes_in_use, quota: 1000 }
    }

    #[test]
    fn large_files_with_unused_space_are_defragmented() {
        for (bytes, in_use, is_out_of_space, expected) in [
            (850, 100, false, true),
            (850, 600, false, false),
            (940, 600, false, true),
            (940, 750, false, false),
            (500, 100, false, false),
            // Callers can't write.
            (960, 850, false, true),
            (960, 860, false, false),
            (1000, 690, true, true),
            (1000, 750, true, false),
            (700, 690, true, false),
        ] {
            let found = file(bytes, in_use).needs_defragmentation(is_out_of_space);
            assert_eq!(found, expected, "{bytes} {in_use} {is_out_of_space}");
        }
    }

    #[test]
    fn a_part_of_the_quota_is_reserved_whatever_is_in_use() {
        assert!(!file(950, 950).is_reserve_used());
        assert!(file(951, 100).is_reserve_used());
        assert!(!file(900, 700).is_low_on_space());
        assert!(file(900, 701).is_low_on_space());
    }
}
