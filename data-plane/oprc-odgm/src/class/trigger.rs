//! Triggers: methods that are called when an object has changed.

use std::time::Duration;

use oprc_condition::Condition;
use serde::{Deserialize, Deserializer, Serialize};

use super::method::{MAX_TIMEOUT_MS, bounded};

/// Events of a batch are removed in one transaction of the store.
const MAX_BATCH: usize = 90;

/// A method or macro that is called when an object has changed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trigger {
    pub method: String,
    #[serde(rename = "type", default)]
    pub trigger_type: TriggerType,
    /// Patterns of collections; `*` matches any characters. All, if there is none.
    #[serde(default)]
    pub collections: Vec<String>,
    /// Whether the caller whose change caused the event doesn't wait for the trigger.
    #[serde(rename = "async", default = "yes")]
    pub is_async: bool,
    /// Must hold for the object after the change.
    #[serde(default)]
    pub condition: Option<Condition>,
    /// Overrides that of the method.
    #[serde(default, deserialize_with = "optional_timeout")]
    timeout_ms: Option<u64>,
}

/// The changes that a trigger follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TriggerType {
    #[default]
    StateChange,
    Create,
    Update,
    Delete,
}

/// What a change did to its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ChangeKind {
    Created,
    Updated,
    Deleted,
}

fn yes() -> bool {
    true
}

fn optional_timeout<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    bounded(deserializer, "timeoutMs", 1..=MAX_TIMEOUT_MS).map(Some)
}

impl Trigger {
    pub(super) fn concerns(&self, collection: &str, kind: ChangeKind) -> bool {
        let is_followed = match self.trigger_type {
            TriggerType::StateChange => true,
            TriggerType::Create => kind == ChangeKind::Created,
            TriggerType::Update => kind == ChangeKind::Updated,
            TriggerType::Delete => kind == ChangeKind::Deleted,
        };
        let matches = |pattern: &String| matches(pattern, collection);
        is_followed && (self.collections.is_empty() || self.collections.iter().any(matches))
    }

    pub fn timeout(&self) -> Option<Duration> {
        self.timeout_ms.map(Duration::from_millis)
    }
}

/// Whether a text matches a pattern in which `*` stands for any characters.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            let mut starts = (0..=rest.len()).filter(|at| rest.is_char_boundary(*at));
            starts.any(|at| rest.get(at..).is_some_and(|rest| matches(after, rest)))
        }),
    }
}

/// How many changes of an object a trigger gets in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Batch {
    #[serde(deserialize_with = "batch_size")]
    pub size: usize,
    /// How long a change waits for further ones.
    #[serde(default)]
    timeout_ms: u64,
}

impl Batch {
    pub fn timeout(self) -> Duration {
        Duration::from_millis(self.timeout_ms.min(MAX_TIMEOUT_MS))
    }
}

fn batch_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    bounded(deserializer, "size", 1..=usize::MAX).map(|it| it.min(MAX_BATCH))
}

/// The cause of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// None if a client wrote the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// How many triggers led to it.
    pub depth: u32,
}
