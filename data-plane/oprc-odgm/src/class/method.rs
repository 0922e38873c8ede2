//! Methods: what the grid knows about a function and how it is called.

use std::time::Duration;

use oprc_condition::Condition;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

/// The longest time of a call, in milliseconds. Results for idempotency keys are kept for longer.
pub(super) const MAX_TIMEOUT_MS: u64 = 600_000;
const MAX_RETRIES: u32 = 10;

/// A method of the class.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Method {
    /// Address of its function.
    pub url: String,
    #[serde(default)]
    pub access: Access,
    /// Calls change nothing, and run side by side.
    #[serde(default)]
    read_only: bool,
    /// Calls take turns with others, but must not change the object.
    #[serde(default)]
    pub immutable: bool,
    /// The function gets no state, and the object need not exist.
    #[serde(default)]
    pub stateless: bool,
    #[serde(default = "default_timeout", deserialize_with = "timeout_ms")]
    timeout_ms: u64,
    /// Calls of the function at once.
    #[serde(default, deserialize_with = "max_concurrency")]
    pub max_concurrency: Option<u32>,
    /// How often a call is repeated after the function wasn't reached.
    #[serde(default, deserialize_with = "retries")]
    pub retries: u32,
    /// Must hold before the function is called.
    #[serde(default)]
    pub condition: Option<Condition>,
}

impl Method {
    /// Of a whole call, with its retries.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    /// Whether calls need no turn, because they change nothing.
    pub fn is_read_only(&self) -> bool {
        self.read_only || self.stateless
    }
}

fn default_timeout() -> u64 {
    30_000
}

/// A value in a range; the error names the field.
pub(super) fn bounded<'de, D, T>(
    deserializer: D,
    field: &str,
    range: std::ops::RangeInclusive<T>,
) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + PartialOrd + std::fmt::Display,
{
    let value = T::deserialize(deserializer)?;
    if range.contains(&value) {
        return Ok(value);
    }
    let (least, most) = (range.start(), range.end());
    Err(D::Error::custom(format!("{field} is {value}; expected: {least} to {most}")))
}

pub(super) fn timeout_ms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    bounded(deserializer, "timeoutMs", 1..=MAX_TIMEOUT_MS)
}

fn max_concurrency<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    match Option::<u32>::deserialize(deserializer)? {
        Some(0) => Err(D::Error::custom("maxConcurrency is 0; expected: at least 1")),
        other => Ok(other),
    }
}

fn retries<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    bounded(deserializer, "retries", 0..=MAX_RETRIES)
}

/// Who may call a method, and who calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Access {
    /// Anyone.
    Public,
    /// Workloads of the cluster.
    #[default]
    Internal,
    /// The class itself.
    Private,
}

impl Access {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Public => "PUBLIC",
            Self::Internal => "INTERNAL",
            Self::Private => "PRIVATE",
        }
    }
}
