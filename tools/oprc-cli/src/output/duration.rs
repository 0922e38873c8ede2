//! Durations and ages.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo, Timestamp};

/// Parses `90s`, `5m`, `1h30m`; a bare number is seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    let span = text.parse::<Span>().ok();
    let length = span.and_then(|it| it.to_duration(SpanRelativeTo::days_are_24_hours()).ok());
    length
        .and_then(|it| Duration::try_from(it).ok())
        .ok_or_else(|| format!("invalid duration {text:?}; use a value such as 30s, 5m or 1h30m"))
}

/// The age of an RFC 3339 timestamp, formatted like `kubectl` does.
pub(crate) fn age(then: &str) -> String {
    age_at(then, Timestamp::now())
}

fn age_at(then: &str, now: Timestamp) -> String {
    match then.parse::<Timestamp>() {
        Ok(then) => short(Duration::try_from(now.duration_since(then)).unwrap_or_default()),
        Err(_) => "-".to_owned(),
    }
}

/// The time since an RFC 3339 timestamp, zero if it is in the future; none if it is invalid.
pub(crate) fn elapsed(since: &str) -> Option<Duration> {
    let elapsed = Timestamp::now().duration_since(since.parse().ok()?);
    Some(Duration::try_from(elapsed).unwrap_or_default())
}

/// The time until an RFC 3339 timestamp, zero if it has passed; none if it is invalid.
pub(crate) fn until(then: &str) -> Option<Duration> {
    let left = then.parse::<Timestamp>().ok()?.duration_since(Timestamp::now());
    Some(Duration::try_from(left).unwrap_or_default())
}

/// Two units at most, such as `4m30s`.
pub(crate) fn short(length: Duration) -> String {
    let seconds = length.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 && !seconds.is_multiple_of(60) => format!("{minutes}m{}s", seconds % 60),
        () if minutes < 120 => format!("{minutes}m"),
        () if hours < 10 && !minutes.is_multiple_of(60) => format!("{hours}h{}m", minutes % 60),
        () if hours < 48 => format!("{hours}h"),
        () => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_durations() {
        let seconds = |text| parse(text).map(|it| it.as_secs_f64());
        assert_eq!(seconds("30"), Ok(30.0));
        assert_eq!(seconds("1h30m"), Ok(5400.0));
        assert_eq!(seconds("250ms"), Ok(0.25));
        for wrong in ["", "m", "5x", "1h3", "-1s", "99999999999999999999s", "9999999999999999999d"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ages_have_two_units_at_most() {
        let now = "2026-11-16T12:00:00Z".parse().unwrap();
        let age = |then| age_at(then, now);
        assert_eq!(age("2026-11-16T11:59:01Z"), "59s");
        assert_eq!(age("2026-11-16T11:55:30Z"), "4m30s");
        assert_eq!(age("2026-11-16T09:30:00Z"), "2h30m");
        assert_eq!(age("2026-10-16T12:00:00Z"), "31d");
        // The server's clock is ahead.
        assert_eq!(age("2026-11-16T12:00:05Z"), "0s");
        assert_eq!(age(""), "-");
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,20}") {
            let _ = parse(&text);
        }
    }
}
