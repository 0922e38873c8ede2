//! Times and ids that are stored and told.

use std::sync::atomic::{AtomicU64, Ordering};

use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// Milliseconds since 1970.
pub type Millis = i64;

/// The time.
pub fn now() -> Millis {
    Millis::try_from(OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000_000)
        .unwrap_or(Millis::MAX)
}

/// A time as RFC 3339 has it, in UTC.
pub fn text(at: Millis) -> String {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(at) * 1_000_000).ok();
    time.and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_default()
}

/// A time that was written so; none where it wasn't.
pub fn parse(text: &str) -> Option<Millis> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    Millis::try_from(time.unix_timestamp_nanos() / 1_000_000).ok()
}

/// The greatest that was made or met.
static LAST: AtomicU64 = AtomicU64::new(0);

/// A new TSID. Each is greater than those that this process has made or met before: neither within a
/// millisecond nor by a clock that was set back does the library alone promise that.
pub fn id() -> String {
    let made = tsid::create_tsid().number();
    let before = LAST.fetch_max(made, Ordering::Relaxed);
    let number = if made > before { made } else { LAST.fetch_add(1, Ordering::Relaxed) + 1 };
    tsid::TSID::from(number).to_string()
}

/// Has all ids to come be greater than one that another process has made.
pub fn meet(id: &str) {
    if let Ok(id) = tsid::TSID::try_from(id) {
        LAST.fetch_max(id.number(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_after_those_of_a_clock_that_was_ahead() {
        let ahead = tsid::TSID::from(tsid::create_tsid().number() + (3_600_000 << 22)).to_string();
        meet(&ahead);
        meet("no id at all");
        assert!(id() > ahead);
    }

    #[test]
    fn ids_sort_by_when_they_were_made() {
        let ids: Vec<_> = (0..10_000).map(|_| id()).collect();
        assert!(ids.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn times_come_back() {
        let at = now();
        assert_eq!(parse(&text(at)), Some(at));
        assert_eq!(text(0), "1970-01-01T00:00:00Z");
        assert_eq!(parse("yesterday"), None);
    }
}
