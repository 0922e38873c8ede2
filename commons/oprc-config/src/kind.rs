//! What values a setting takes.

use std::{fmt, time::Duration};

use serde_json::Value as Raw;

use crate::{Value, value::scalar};

/// What values a setting takes: for checking, and for telling the user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Any text.
    Text,
    /// `true` or `false`; also `yes`/`no`, `on`/`off`, `1`/`0`.
    Bool,
    /// A whole number, bounds included.
    Integer {
        /// The smallest that is allowed.
        min: i64,
        /// The largest that is allowed.
        max: i64,
    },
    /// A finite number, bounds included.
    Float {
        /// The smallest that is allowed.
        min: f64,
        /// The largest that is allowed.
        max: f64,
    },
    /// `500ms`, `30s`, `5m`, `1h`, or a plain number of seconds.
    Duration,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// Texts separated by commas; in the file also a list.
    List,
    /// The path of a file or directory, not empty.
    Path,
}

impl Kind {
    /// The value that `raw` stands for, if this kind allows it.
    pub(crate) fn check(&self, raw: &Raw) -> Option<Value> {
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
            Self::Bool => truth(trimmed).map(Value::Bool),
            Self::Integer { min, max } => trimmed
                .parse()
                .ok()
                .filter(|number| (min..=max).contains(&number))
                .map(Value::Integer),
            Self::Float { min, max } => trimmed
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite() && (min..=max).contains(&number))
                .map(Value::Float),
            Self::Duration => duration(trimmed).map(Value::Duration),
            Self::List => {
                let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                Some(Value::List(items.map(str::to_owned).collect()))
            }
        }
    }

    /// What stands for the value in the usage of a flag.
    pub(crate) fn placeholder(&self) -> &'static str {
        match self {
            Self::Text => "TEXT",
            Self::Bool => "BOOL",
            Self::Integer { .. } => "INTEGER",
            Self::Float { .. } => "NUMBER",
            Self::Duration => "DURATION",
            Self::OneOf(_) => "CHOICE",
            Self::List => "LIST",
            Self::Path => "PATH",
        }
    }
}

/// What is allowed, to follow "allowed is".
impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => out.write_str("any text"),
            Self::Bool => out.write_str("true or false"),
            Self::Integer { min, max: i64::MAX } => write!(out, "an integer of at least {min}"),
            Self::Integer { min, max } => write!(out, "an integer from {min} to {max}"),
            Self::Float { min, max } if *max < f64::MAX => {
                write!(out, "a number from {min} to {max}")
            }
            Self::Float { min, .. } => write!(out, "a number of at least {min}"),
            Self::Duration => {
                out.write_str("a duration such as 500ms, 30s, 5m, 1h, or a number of seconds")
            }
            Self::OneOf(allowed) => write!(out, "one of {}", allowed.join(", ")),
            Self::List => out.write_str("a list, or texts separated by commas"),
            Self::Path => out.write_str("a path"),
        }
    }
}

fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

fn duration(text: &str) -> Option<Duration> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    // "+5", "-5", "inf": numbers to Rust, but not durations.
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
    fn durations() {
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
    fn bounds_are_included_and_numbers_finite() {
        let kind = Kind::Integer { min: 1, max: 3 };
        assert_eq!(kind.check(&1.into()), Some(Value::Integer(1)));
        assert_eq!(kind.check(&"3".into()), Some(Value::Integer(3)));
        assert_eq!(kind.check(&4.into()), None);
        assert_eq!(kind.check(&1.5.into()), None);
        let kind = Kind::Float { min: 0.0, max: f64::INFINITY };
        assert_eq!(kind.check(&0.into()), Some(Value::Float(0.0)));
        assert_eq!(kind.check(&"inf".into()), None);
        assert_eq!(kind.check(&"NaN".into()), None);
    }

    #[test]
    fn only_lists_take_lists() {
        let list = serde_json::json!(["a,b", 1]);
        assert_eq!(Kind::List.check(&list), Some(Value::List(vec!["a,b".into(), "1".into()])));
        assert_eq!(
            Kind::List.check(&"a, b,,".into()),
            Some(Value::List(vec!["a".into(), "b".into()]))
        );
        assert_eq!(Kind::Text.check(&list), None);
        assert_eq!(Kind::List.check(&serde_json::json!([["a"]])), None);
    }
}
