use std::fmt;

use k8s_openapi::jiff::Timestamp;
use serde::{
    Deserialize, Deserializer,
    de::{self, Visitor},
};

use crate::provider::{Point, known_value};

/// A value that is unknown is NaN.
pub(super) struct RawPoint(pub(super) Point);

impl<'de> Deserialize<'de> for RawPoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (seconds, ValueText(value)) = <(f64, ValueText)>::deserialize(deserializer)?;
        let at = timestamp(seconds).ok_or_else(|| de::Error::custom("invalid timestamp"))?;
        Ok(Self(Point { at, value: value.unwrap_or(f64::NAN) }))
    }
}

/// Prometheus has a precision of milliseconds.
fn timestamp(seconds: f64) -> Option<Timestamp> {
    let milliseconds = (seconds * 1000.0).round();
    // Larger numbers aren't exact, and years after 10,000.
    if !(0.0..=1e15).contains(&milliseconds) {
        return None;
    }
    #[allow(clippy::cast_possible_truncation)]
    Timestamp::from_millisecond(milliseconds as i64).ok()
}

/// A number as text, such as "0.5" or "NaN".
struct ValueText(Option<f64>);

impl<'de> Deserialize<'de> for ValueText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = ValueText;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a number as text")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ValueText, E> {
                Ok(ValueText(text.parse().ok().and_then(known_value)))
            }
        }
        deserializer.deserialize_str(Text)
    }
}
