//! Requirements of classes and functions.

use oprc_models::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

unit_types! {
    /// Non-functional requirements of a class or function.
    #[x_kube(
        validation = Rule::new("!has(self.availability) || !has(self.availability_pct)")
            .message("availability and availability_pct are mutually exclusive")
    )]
    Requirements {
        /// Required throughput in requests per second, 0 to 1000000000. Violated if fewer are served
        /// while requests fail, are rejected or wait.
        #[schemars(range(min = limits::THROUGHPUT.min, max = limits::THROUGHPUT.max))]
        min_throughput_rps?: Option<i32>,
        /// Target response time in milliseconds, 1 to 86400000. Violated if the 95th percentile is
        /// longer.
        #[schemars(range(min = limits::CALL_MS.min, max = limits::CALL_MS.max))]
        max_latency_ms?: Option<i32>,
        /// Required availability as a fraction from 0 to 1, such as 0.999. Must not be combined
        /// with `availability_pct`.
        #[schemars(range(min = 0.0, max = 1.0))]
        availability?: Option<f64>,
        /// Required availability in percent from 0 to 100, such as 99.9. Must not be combined with
        /// `availability`.
        #[schemars(range(min = 0.0, max = 100.0))]
        availability_pct?: Option<f64>,
        /// Required consistency of reads: `strong` or `eventual`.
        consistency?: Option<Consistency>,
    }
}

impl Requirements {
    /// The required availability as a fraction, whichever field gives it.
    pub fn availability(&self) -> Option<f64> {
        self.availability.or_else(|| self.availability_pct.map(|percent| percent / 100.0))
    }
}

/// Consistency of reads of replicated data: `strong` reads see the latest write, `eventual` reads
/// may see an older one. The consistency of `state` overrides that of requirements, of which the
/// strictest applies.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Consistency {
    /// Reads see the latest write.
    Strong,
    /// Reads may see an older write.
    #[default]
    Eventual,
}

unit_types! {
    /// Hard limits. A class that cannot meet them in this cluster is rejected.
    Constraints {
        /// Maximum response time in milliseconds, 1 to 86400000. Templates whose latency floor
        /// exceeds this are excluded; if none is left, the class is rejected. Calls that take
        /// longer are counted.
        #[schemars(range(min = limits::CALL_MS.min, max = limits::CALL_MS.max))]
        hard_latency_ms?: Option<i32>,
        /// Maximum number of concurrent requests per instance, 1 to 1000. Further requests wait in a
        /// bounded queue; if it is full, they are answered with 503.
        #[schemars(range(min = limits::CONCURRENCY.min, max = limits::CONCURRENCY.max))]
        max_concurrency?: Option<i32>,
        /// Rejects calls with 503 for some seconds when most of them exceed `hard_latency_ms`, which is
        /// required with it. Only in front of Deployments. Defaults to false.
        circuit_breaker?: Option<bool>,
    }

    /// Enforcement of non-functional requirements.
    NfrSpec {
        /// What CRM does about requirements that are not met.
        enforcement?: Option<Enforcement>,
    }

    /// What CRM does about requirements that are not met.
    Enforcement {
        /// Enforcement mode: `off` measures nothing, `observe` reports compliance and recommendations,
        /// `enforce` applies them within safeguards. Defaults to `observe`.
        #[serde(default)]
        mode: EnforcementMode,
        /// What enforcement may change: `replicas`, `memory`, `cpu` and `template`. Defaults to all
        /// of them.
        #[schemars(length(max = 4))]
        dimensions?: Vec<Dimension>,
    }
}

/// Whether a proxy runs in front of functions: `auto` in front of functions with requirements or
/// constraints, `always` in front of all, `never` in front of none. Defaults to `auto`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ProxyMode {
    /// In front of functions with requirements or constraints.
    #[default]
    Auto,
    /// In front of all functions.
    Always,
    /// In front of none.
    Never,
}

/// Enforcement mode: `off` measures nothing, `observe` reports compliance and recommendations,
/// `enforce` applies them within safeguards. Defaults to `observe`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum EnforcementMode {
    /// Measures nothing.
    Off,
    /// Reports recommendations.
    #[default]
    Observe,
    /// Applies recommendations within safety limits.
    Enforce,
}

/// What enforcement may change: `replicas`, `memory`, `cpu` or `template`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// Number of instances.
    Replicas,
    /// Memory of each instance.
    Memory,
    /// CPU of each instance.
    Cpu,
    /// Template of each function of a class with template `unified`.
    Template,
}

impl EnforcementMode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Observe => "observe",
            Self::Enforce => "enforce",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Off, Self::Observe, Self::Enforce].into_iter().find(|it| it.as_str() == text)
    }
}

impl Dimension {
    pub const ALL: [Self; 4] = [Self::Replicas, Self::Memory, Self::Cpu, Self::Template];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Replicas => "replicas",
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Template => "template",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == text)
    }
}
