//! Times: how long ago, and how long.

use std::time::Duration;

use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// A time that was said, such as `90s`, `5m`, `1h30m`; a bare number is seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time such as 30s, 5m or 1h30m");
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    let (mut total, mut number) = (Duration::ZERO, String::new());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter.is_ascii_digit() {
            number.push(letter);
            continue;
        }
        let count: u64 = number.parse().map_err(|_| wrong())?;
        number.clear();
        let part = match letter {
            'm' if letters.next_if_eq(&'s').is_some() => Duration::from_millis(count),
            's' => Duration::from_secs(count),
            'm' => Duration::from_secs(count.checked_mul(60).ok_or_else(wrong)?),
            'h' => Duration::from_secs(count.checked_mul(3600).ok_or_else(wrong)?),
            'd' => Duration::from_secs(count.checked_mul(86_400).ok_or_else(wrong)?),
            _ => return Err(wrong()),
        };
        total = total.checked_add(part).ok_or_else(wrong)?;
    }
    if number.is_empty() && !text.is_empty() { Ok(total) } else { Err(wrong()) }
}

/// How long ago a time of the API was, in a few letters, as `kubectl` writes it.
pub(crate) fn since(then: &str) -> String {
    since_at(then, OffsetDateTime::now_utc())
}

fn since_at(then: &str, now: OffsetDateTime) -> String {
    match OffsetDateTime::parse(then, &Rfc3339) {
        Ok(then) => short(Duration::try_from(now - then).unwrap_or_default()),
        Err(_) => "-".to_owned(),
    }
}

/// A length of time in a few letters.
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
    fn times_are_read() {
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
    fn ages_are_short() {
        let now = OffsetDateTime::parse("2026-11-16T12:00:00Z", &Rfc3339).unwrap();
        let told = |then| since_at(then, now);
        assert_eq!(told("2026-11-16T11:59:01Z"), "59s");
        assert_eq!(told("2026-11-16T11:55:30Z"), "4m30s");
        assert_eq!(told("2026-11-16T09:30:00Z"), "2h30m");
        assert_eq!(told("2026-10-16T12:00:00Z"), "31d");
        // A clock that is ahead of ours.
        assert_eq!(told("2026-11-16T12:00:05Z"), "0s");
        assert_eq!(told(""), "-");
    }

    proptest! {
        #[test]
        fn nothing_that_is_said_panics(text in ".{0,20}") {
            let _ = parse(&text);
        }
    }
}
