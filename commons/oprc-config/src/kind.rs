use std::{fmt, time::Duration};

use serde_json::Value as Raw;

use crate::{Value, value::scalar};

/// The values that a setting accepts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Text,
    /// `true` or `false`; also `yes`/`no`, `on`/`off`, `1`/`0`.
    Bool,
    /// Both bounds are inclusive.
    Integer {
        min: i64,
        max: i64,
    },
    /// `500ms`, `30s`, `5m`, `1h`, or a plain number of seconds.
    Duration,
    OneOf(&'static [&'static str]),
    /// Comma-separated; in the file also a YAML list.
    List,
    /// Not empty.
    Path,
}

impl Kind {
    /// `None` if this kind doesn't accept the value.
    pub(crate) fn parse(&self, raw: &Raw) -> Option<Value> {
        if let (Self::List, Raw::Array(items)) = (self, raw) {
            return items.iter().map(scalar).collect::<Option<_>>().map(Value::List);
        }
        let text = scalar(raw)?;
        let trimmed = text.trim();
        match self {
            Self::Text => Some(Value::Text(text)),
            Self::Path => (!text.is_empty()).then_some(Value::Text(text)),
            Self::OneOf(allowed) => {
                allowed.contains(&trimmed).then(|| Value::Text(trimmed.to_owned()))
            }
            Self::Bool => bool(trimmed).map(Value::Bool),
            Self::Integer { min, max } => trimmed
                .parse()
                .ok()
                .filter(|number| (min..=max).contains(&number))
                .map(Value::Integer),
            Self::Duration => duration(trimmed).map(Value::Duration),
            Self::List => {
                let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                Some(Value::List(items.map(str::to_owned).collect()))
            }
        }
    }

    /// The name of the value in `--help`.
    pub(crate) fn value_name(&self) -> &'static str {
        match self {
            Self::Text => "TEXT",
            Self::Bool => "BOOL",
            Self::Integer { .. } => "INTEGER",
            Self::Duration => "DURATION",
            Self::OneOf(_) => "CHOICE",
            Self::List => "LIST",
            Self::Path => "PATH",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => out.write_str("any text"),
            Self::Bool => out.write_str("true or false"),
            Self::Integer { min, max: i64::MAX } => write!(out, "an integer, at least {min}"),
            Self::Integer { min, max } => write!(out, "an integer from {min} to {max}"),
            Self::Duration => {
                out.write_str("a duration such as 500ms, 30s, 5m, 1h, or a number of seconds")
            }
            Self::OneOf(allowed) => write!(out, "one of {}", allowed.join(", ")),
            Self::List => out.write_str("a comma-separated list"),
            Self::Path => out.write_str("a path"),
        }
    }
}

fn bool(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

fn duration(text: &str) -> Option<Duration> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    // Rust parses "+5", "-5" and "inf" as numbers, but they aren't durations.
    if number.contains(|c: char| !(c.is_ascii_digit() || c == '.')) {
        return None;
    }
    let seconds = match text.strip_prefix(number)? {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_durations() {
        for (text, millis) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("45", 45_000),
            ("0.5", 500),
            ("3ms", 3),
        ] {
            assert_eq!(duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "-1s", "+1s", "1d", "1 m x", "1e3", "inf", "99999999999999999999h"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn bounds_are_inclusive() {
        let kind = Kind::Integer { min: 1, max: 3 };
        assert_eq!(kind.parse(&1.into()), Some(Value::Integer(1)));
        assert_eq!(kind.parse(&"3".into()), Some(Value::Integer(3)));
        assert_eq!(kind.parse(&4.into()), None);
        assert_eq!(kind.parse(&1.5.into()), None);
        assert_eq!(kind.parse(&"inf".into()), None);
    }

    #[test]
    fn only_list_settings_accept_lists() {
        let list = serde_json::json!(["a,b", 1]);
        assert_eq!(Kind::List.parse(&list), Some(Value::List(vec!["a,b".into(), "1".into()])));
        assert_eq!(
            Kind::List.parse(&"a, b,,".into()),
            Some(Value::List(vec!["a".into(), "b".into()]))
        );
        assert_eq!(Kind::Text.parse(&list), None);
        assert_eq!(Kind::List.parse(&serde_json::json!([["a"]])), None);
    }
}
