//! Types of plain scalars according to YAML's core schema.

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scalar {
    Null,
    Bool(bool),
    /// None where it does not fit into 64 bits.
    Integer(Option<i64>),
    /// None where it is not finite.
    Float(Option<f64>),
    Text,
}

impl Scalar {
    pub(crate) fn of(text: &str) -> Self {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => Self::Null,
            "true" | "True" | "TRUE" => Self::Bool(true),
            "false" | "False" | "FALSE" => Self::Bool(false),
            ".nan" | ".NaN" | ".NAN" => Self::Float(None),
            _ => Self::number(text),
        }
    }

    fn number(text: &str) -> Self {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        if matches!(digits, ".inf" | ".Inf" | ".INF") {
            return Self::Float(None);
        }
        let radix = |digits: &str, radix: u32| {
            let all = !digits.is_empty() && digits.chars().all(|it| it.is_digit(radix));
            all.then(|| Self::Integer(i64::from_str_radix(digits, radix).ok()))
        };
        if let Some(found) = text.strip_prefix("0o").and_then(|digits| radix(digits, 8)) {
            return found;
        }
        if let Some(found) = text.strip_prefix("0x").and_then(|digits| radix(digits, 16)) {
            return found;
        }
        if !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit()) {
            return Self::Integer(text.strip_prefix('+').unwrap_or(text).parse().ok());
        }
        // Rust also parses words such as "inf" as floats; YAML does not.
        let begins = digits.trim_start_matches('.').starts_with(|it: char| it.is_ascii_digit());
        let allowed = |it: u8| it.is_ascii_digit() || b".eE+-".contains(&it);
        match text.parse::<f64>() {
            Ok(number) if begins && digits.bytes().all(allowed) => {
                Self::Float(Some(number).filter(|it| it.is_finite()))
            }
            _ => Self::Text,
        }
    }

    pub(crate) fn type_name(self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Integer(_) | Self::Float(_) => "a number",
            Self::Text => "a string",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Scalar::{self, Bool, Float, Integer, Null, Text};

    #[test]
    fn recognizes_the_core_schema() {
        for (text, expected) in [
            ("", Null),
            ("~", Null),
            ("True", Bool(true)),
            ("yes", Text),
            ("off", Text),
            ("12", Integer(Some(12))),
            ("-12", Integer(Some(-12))),
            ("+12", Integer(Some(12))),
            ("0o17", Integer(Some(15))),
            ("0xff", Integer(Some(255))),
            ("99999999999999999999", Integer(None)),
            ("1.5", Float(Some(1.5))),
            (".5", Float(Some(0.5))),
            ("1e3", Float(Some(1000.0))),
            ("1e999", Float(None)),
            ("-.inf", Float(None)),
            (".nan", Float(None)),
            ("inf", Text),
            ("nan", Text),
            ("1.2.3", Text),
            ("0x", Text),
            ("-", Text),
            (".", Text),
            ("e5", Text),
        ] {
            assert_eq!(Scalar::of(text), expected, "{text}");
        }
    }
}
