//! What is required of classes and functions.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is required of a class or function.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("!has(self.availability) || !has(self.availability_pct)")
        .message("availability and availability_pct say the same thing: give one of them")
)]
pub struct Requirements {
    /// Requests for each second that must be served.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub min_throughput_rps: Option<i32>,
    /// How many milliseconds an answer may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400_000))]
    pub max_latency_ms: Option<i32>,
    /// The part of the time that the class must be available, such as 0.999.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub availability: Option<f64>,
    /// The same in percent, such as 99.9.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 100.0))]
    pub availability_pct: Option<f64>,
    /// What readers may see.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consistency: Option<Consistency>,
}

/// What readers of replicated data may see.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Consistency {
    /// The last write, always.
    Strong,
    /// The last write, some time.
    #[default]
    Eventual,
}

/// What must never be exceeded.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct Constraints {
    /// Milliseconds that no answer may exceed: what can't keep to it isn't deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400_000))]
    pub hard_latency_ms: Option<i32>,
    /// How many calls one instance may work on at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_concurrency: Option<i32>,
}

/// How requirements are watched and enforced.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct NfrSpec {
    /// What is done about requirements that aren't met.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enforcement: Option<Enforcement>,
}

/// What is done about requirements that aren't met.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct Enforcement {
    /// Whether anything is done.
    #[serde(default)]
    pub mode: EnforcementMode,
    /// What may be changed; all of it, unless said otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3))]
    pub dimensions: Vec<Dimension>,
}

/// Whether anything is done about requirements that aren't met.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum EnforcementMode {
    /// Nothing is looked at.
    Off,
    /// Recommendations are made.
    #[default]
    Observe,
    /// Recommendations are followed, within safeguards.
    Enforce,
}

/// What enforcement may change.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// How many instances there are.
    Replicas,
    /// How much memory each has.
    Memory,
    /// How much processor time each has.
    Cpu,
}
