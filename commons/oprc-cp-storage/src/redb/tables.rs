//! The tables of the file.

use redb::TableDefinition;

/// Key to version and value.
pub(super) const ENTRIES: TableDefinition<'static, &str, (u64, &[u8])> =
    TableDefinition::new("entries");
/// Revision and format of the file.
pub(super) const ABOUT: TableDefinition<'static, &str, u64> = TableDefinition::new("about");

pub(super) const REVISION: &str = "revision";
pub(super) const FORMAT: &str = "format";
pub(super) const FORMAT_NUMBER: u64 = 1;
