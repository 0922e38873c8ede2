//! A class, parsed once into types that can't be wrong.

mod addon;
mod faults;
mod grid;
#[cfg(test)]
mod tests;
mod validate;

pub use self::{
    addon::{ADDONS, Addon},
    grid::{CollectionPlan, OdgmPlan, Trigger, persistence, shard_type},
    validate::validate,
};
use crate::{
    names,
    platform::Profile,
    spec::{
        Access, EnvFrom, EnvVar, HealthCheck, OdgmIntegration, PartitionInfo, PullPolicy,
        Resources, Security, Telemetry, VolumeMount,
    },
};

/// Who a class is.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    /// The ClassRuntime's name.
    pub name: String,
    /// What its children's names begin with.
    pub base: String,
    /// Its namespace.
    pub namespace: String,
    /// Its identity in the cluster.
    pub uid: String,
    /// The generation that is to be brought about.
    pub generation: i64,
    /// The id it was deployed under, or its name.
    pub deployment_id: String,
    /// The environment it is for, where it says.
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
    /// Who it is.
    pub identity: Identity,
    /// Functions with a container.
    pub functions: Vec<ValidFunction>,
    /// Functions without one, and why.
    pub passive: Vec<Passive>,
    /// Its data grid.
    pub odgm: Option<OdgmPlan>,
    /// The template that was asked for.
    pub template: Option<String>,
    /// The profile whose sizes and defaults it has.
    pub profile: Profile,
    /// The part of its data that it has, where it has one.
    pub partition: Option<PartitionInfo>,
    /// What it tells of itself.
    pub telemetry: Telemetry,
}

/// A function that has no container here.
#[derive(Clone, Debug, PartialEq)]
pub struct Passive {
    /// Its key.
    pub key: String,
    pub reason: PassiveReason,
}

/// Why a function has no container.
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
    /// Its key, or the class's name for the only function of a class.
    pub key: String,
    /// Its key as far as names are concerned: none for the only function of a class.
    pub name_key: Option<String>,
    /// Whether it may run as a Job.
    pub task: bool,
    /// The image.
    pub image: String,
    /// The port it listens on.
    pub port: i32,
    /// How many instances are asked for at least.
    pub min_scale: Option<i32>,
    /// How many at most.
    pub max_scale: Option<i32>,
    /// Instances that the availability requirement takes; none where nothing is required, or on
    /// standby.
    pub required_instances: Option<i32>,
    /// What each instance asks for, as far as it is said.
    pub requests: Resources,
    /// What each instance may not exceed, as far as it is said.
    pub limits: Resources,
    /// Platform variables of the user.
    pub env: Vec<EnvVar>,
    /// Secrets and ConfigMaps of the user.
    pub env_from: Vec<EnvFrom>,
    /// When the image is pulled.
    pub pull_policy: Option<PullPolicy>,
    /// What it is pulled with.
    pub pull_secrets: Vec<String>,
    /// The account it runs under.
    pub service_account: Option<String>,
    /// What is mounted.
    pub mounts: Vec<VolumeMount>,
    /// The program.
    pub command: Vec<String>,
    /// Its arguments.
    pub args: Vec<String>,
    /// What it may do.
    pub security: Security,
    /// How its health is asked for.
    pub health: HealthCheck,
    /// How long a call may take.
    pub timeout_ms: Option<i32>,
    /// Requests for each second.
    pub throughput: Option<i32>,
    /// Milliseconds for each answer.
    pub latency: Option<i32>,
    /// Milliseconds that no answer may exceed.
    pub hard_latency: Option<i32>,
    /// Calls at once.
    pub max_concurrency: Option<i32>,
    /// Who may call it.
    pub access: Access,
    /// Whether it is to cost as little as possible.
    pub standby: bool,
    /// How it uses the data grid.
    pub odgm: OdgmIntegration,
}

impl ValidFunction {
    /// How long a call may take, in whole seconds.
    pub fn timeout_seconds(&self) -> Option<i32> {
        self.timeout_ms.map(|timeout| timeout.saturating_add(999).div_euclid(1000))
    }

    /// Whether its bounds say that load comes in bursts.
    pub fn is_bursty(&self) -> bool {
        let floor = self.min_scale.max(self.required_instances).unwrap_or(1).max(1);
        self.max_scale.is_some_and(|max| max >= floor.saturating_mul(4))
    }

    /// Whether bounds are given that don't.
    pub fn is_steady(&self) -> bool {
        (self.min_scale.is_some() || self.max_scale.is_some()) && !self.is_bursty()
    }

    /// Whether it is to cost as little as possible.
    pub fn is_cost_bound(&self) -> bool {
        self.standby || (self.min_scale == Some(0) && self.required_instances.is_none())
    }
}

/// Something that is wrong with a specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The field, as in `functions[0].port`.
    pub field: String,
    /// What is wrong, and what is allowed.
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

/// Why a class can't be brought about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub reason: RejectionReason,
    /// Whether it could be brought about elsewhere or later, as it stands.
    pub precondition: bool,
    /// In one sentence.
    pub message: String,
    /// Field by field, where fields are to blame.
    pub violations: Vec<Violation>,
}

impl Rejection {
    /// Fields are wrong.
    pub fn invalid(violations: Vec<Violation>) -> Self {
        let mut message = String::new();
        for violation in violations.iter().take(8) {
            if !message.is_empty() {
                message.push_str("; ");
            }
            message.push_str(&violation.field);
            message.push_str(": ");
            message.push_str(&violation.message);
        }
        if violations.len() > 8 {
            message.push_str("; and more");
        }
        Self { reason: RejectionReason::InvalidSpec, precondition: false, message, violations }
    }

    /// It can't be done here, or not now.
    pub fn precondition(reason: RejectionReason, field: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        let violation = Violation { field: field.to_owned(), message: message.clone() };
        Self { reason, precondition: true, message, violations: vec![violation] }
    }
}

/// The longest message of a condition or violation, in characters.
pub const MAX_MESSAGE: usize = 2048;

/// The message, cut to [`MAX_MESSAGE`] characters.
pub fn truncate_message(message: &str) -> String {
    let mut text: String = message.chars().take(MAX_MESSAGE).collect();
    if text.len() < message.len() {
        text.push('…');
    }
    text
}
