//! The tables of the file.

use redb::{ReadableTable, StorageError, TableDefinition};

use crate::Revision;

/// Key to version and value.
pub(super) const ENTRIES: TableDefinition<'static, &str, (u64, &[u8])> =
    TableDefinition::new("entries");
/// Revision and format of the file.
pub(super) const ABOUT: TableDefinition<'static, &str, u64> = TableDefinition::new("about");

pub(super) const REVISION: &str = "revision";
pub(super) const FORMAT: &str = "format";
pub(super) const FORMAT_NUMBER: u64 = 1;

/// The revision of the store, from the table [`ABOUT`].
pub(super) fn revision(
    about: &impl ReadableTable<&'static str, u64>,
) -> Result<Revision, StorageError> {
    Ok(Revision(about.get(REVISION)?.map_or(0, |number| number.value())))
}
