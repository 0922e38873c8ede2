//! The wall clock of stored and reported times.

use jiff::Timestamp;

/// The current time in whole milliseconds, the precision of stored times.
pub(crate) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}
