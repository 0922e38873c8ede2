//! What is in the file.

use redb::TableDefinition;

/// Each entry with its version.
pub(super) const ENTRIES: TableDefinition<'static, &str, (u64, &[u8])> =
    TableDefinition::new("entries");
/// Numbers about the whole.
pub(super) const ABOUT: TableDefinition<'static, &str, u64> = TableDefinition::new("about");

/// The revision of the store.
pub(super) const REVISION: &str = "revision";
/// How the file is made.
pub(super) const FORMAT: &str = "format";
/// The only one so far.
pub(super) const FORMAT_NUMBER: u64 = 1;
