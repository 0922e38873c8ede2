//! A class, parsed once into types that rule out invalid values.

mod addon;
mod grid;
mod membership;
mod methods;
mod requirements;
mod schema_limits;
#[cfg(test)]
mod tests;
mod validate;
mod violations;

pub use self::{
    addon::{ADDONS, Addon},
    grid::{CollectionPlan, OdgmPlan, persistence, shard_type},
    membership::{MembershipPlan, partition_owners},
    methods::{MacroPlan, MethodPlan, TriggerPlan},
    requirements::{FunctionRequirements, function_requirements},
    validate::{PROXY_ADMIN_PORT, PROXY_PORT, validate},
};
use crate::{
    names,
    platform::Profile,
    spec::{
        Access, EnvFrom, EnvVar, HealthCheck, OdgmIntegration, PartitionInfo, PullPolicy,
        Resources, Security, Telemetry, VolumeMount,
    },
};

#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    /// Name of the ClassRuntime.
    pub name: String,
    /// Prefix of the names of child objects.
    pub base: String,
    pub namespace: String,
    pub uid: String,
    /// The generation to reconcile.
    pub generation: i64,
    /// The id under which it was deployed, or else its name.
    pub deployment_id: String,
    pub environment: Option<String>,
}

impl Identity {
    /// The identity of a unit that isn't stored yet: it has no uid and no generation.
    pub fn for_unit(id: &str, namespace: &str, environment: Option<&str>) -> Self {
        let name = names::class_runtime(id);
        Self {
            base: names::base(&name),
            name,
            namespace: namespace.to_owned(),
            uid: String::new(),
            generation: 0,
            deployment_id: id.to_owned(),
            environment: environment.map(str::to_owned),
        }
    }
}

/// A class that can be rendered.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidClass {
    pub identity: Identity,
    /// Functions with a container.
    pub functions: Vec<ValidFunction>,
    /// Functions without a container.
    pub passive: Vec<Passive>,
    pub odgm: Option<OdgmPlan>,
    /// The requested template.
    pub template: Option<String>,
    /// The profile whose sizes and defaults apply.
    pub profile: Profile,
    pub partition: Option<PartitionInfo>,
    pub telemetry: Telemetry,
}

/// A function without a container.
#[derive(Clone, Debug, PartialEq)]
pub struct Passive {
    pub key: String,
    pub reason: PassiveReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassiveReason {
    /// It is in `disabled_functions`.
    Disabled,
    /// It has no image.
    NoContainer,
}

/// A function that can be rendered.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidFunction {
    /// Its key, or the class's name for a class with the single `function`.
    pub key: String,
    /// Its key as a part of object names; `None` for a class with the single `function`.
    pub name_key: Option<String>,
    /// Whether it may run as a Job.
    pub task: bool,
    pub image: String,
    pub port: i32,
    pub min_scale: Option<i32>,
    pub max_scale: Option<i32>,
    /// Minimum number of instances for the required availability; `None` without a requirement and
    /// on standby.
    pub required_instances: Option<i32>,
    /// Set by the user; the platform's defaults apply to the rest.
    pub requests: Resources,
    /// Set by the user; the platform's defaults apply to the rest.
    pub limits: Resources,
    pub env: Vec<EnvVar>,
    pub env_from: Vec<EnvFrom>,
    pub pull_policy: Option<PullPolicy>,
    pub pull_secrets: Vec<String>,
    pub service_account: Option<String>,
    pub mounts: Vec<VolumeMount>,
    pub command: Vec<String>,
    pub args: Vec<String>,
    pub security: Security,
    pub health: HealthCheck,
    pub timeout_ms: Option<i32>,
    /// How often the data grid repeats a failed call; its own default if none.
    pub retries: Option<i32>,
    /// Required requests per second.
    pub throughput: Option<i32>,
    /// Required latency in milliseconds.
    pub latency: Option<i32>,
    /// Maximum latency in milliseconds, as a hard constraint.
    pub hard_latency: Option<i32>,
    /// Maximum number of concurrent calls.
    pub max_concurrency: Option<i32>,
    /// Whether the proxy rejects calls while most of them exceed the hard latency.
    pub circuit_breaker: bool,
    /// Whether a proxy runs in front of it if it runs as a Deployment.
    pub proxy: bool,
    /// The widest access of all bindings.
    pub access: Access,
    /// Whether it runs at the lowest cost.
    pub standby: bool,
    pub odgm: OdgmIntegration,
}

impl ValidFunction {
    /// The timeout of a call in whole seconds, rounded up.
    pub fn timeout_seconds(&self) -> Option<i32> {
        self.timeout_ms.map(|timeout| timeout.saturating_add(999).div_euclid(1000))
    }

    /// Whether its bounds imply bursts: the maximum is at least four times the minimum.
    pub fn is_bursty(&self) -> bool {
        let floor = self.min_scale.max(self.required_instances).unwrap_or(1).max(1);
        self.max_scale.is_some_and(|max| max >= floor.saturating_mul(4))
    }

    /// Whether it has bounds that imply a steady load.
    pub fn is_steady(&self) -> bool {
        (self.min_scale.is_some() || self.max_scale.is_some()) && !self.is_bursty()
    }

    /// Whether it must run at the lowest cost: it is on standby or may scale to zero.
    pub fn is_cost_bound(&self) -> bool {
        self.standby || (self.min_scale == Some(0) && self.required_instances.is_none())
    }
}

/// An invalid field of a specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The path of the field, such as `functions[0].port`.
    pub field: String,
    /// What is wrong and what is allowed.
    pub message: String,
}

/// Why a unit is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectionReason {
    InvalidSpec,
    OdgmDisabled,
    /// The change would lose data of a persistent collection.
    DataAtRisk,
    UnknownTemplate,
    TemplateRejected,
    NoSuitableTemplate,
}

impl RejectionReason {
    /// The reason in conditions and error details.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidSpec => "InvalidSpec",
            Self::OdgmDisabled => "OdgmDisabled",
            Self::DataAtRisk => "DataAtRisk",
            Self::UnknownTemplate => "UnknownTemplate",
            Self::TemplateRejected => "TemplateRejected",
            Self::NoSuitableTemplate => "NoSuitableTemplate",
        }
    }
}

impl std::fmt::Display for RejectionReason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A unit that can't run, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub reason: RejectionReason,
    /// Whether the same unit could be admitted by another cluster or later.
    pub precondition: bool,
    pub message: String,
    pub violations: Vec<Violation>,
}

impl Rejection {
    pub fn invalid(violations: Vec<Violation>) -> Self {
        let shown = violations.iter().take(8);
        let shown: Vec<_> = shown.map(|it| format!("{}: {}", it.field, it.message)).collect();
        let mut message = shown.join("; ");
        if violations.len() > 8 {
            message.push_str("; and more");
        }
        Self { reason: RejectionReason::InvalidSpec, precondition: false, message, violations }
    }

    pub fn precondition(reason: RejectionReason, field: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        let violation = Violation { field: field.to_owned(), message: message.clone() };
        Self { reason, precondition: true, message, violations: vec![violation] }
    }
}

/// Maximum length of the message of a condition or violation, in characters.
pub const MAX_MESSAGE: usize = 2048;

/// Truncates a message to [`MAX_MESSAGE`] characters.
pub fn truncate_message(message: &str) -> String {
    let mut text: String = message.chars().take(MAX_MESSAGE).collect();
    if text.len() < message.len() {
        text.push('…');
    }
    text
}
