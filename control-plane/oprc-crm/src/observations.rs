//! The latest measurements of all functions: the analyzer publishes them, metrics and gRPC read them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;
use oprc_nfr::{
    Wait,
    compliance::{Requirement, Verdict},
    enforcement::Hold,
    migration::MigrationHold,
    resources::WaitReason,
};
use oprc_unit::spec::{Dimension, EnforcementMode};
use parking_lot::RwLock;

use crate::{reason::Reason, signals::ClassKey};

/// Immutable; a pass publishes a new one.
#[derive(Clone, Debug, Default)]
pub struct Observations {
    /// When `classes` were measured. None before the first pass that succeeded.
    pub observed_at: Option<Timestamp>,
    /// Why the latest pass failed. `classes` are those of the last one that succeeded then.
    pub failure: Option<String>,
    /// The functions of each class by key. Classes with enforcement mode `off` aren't measured.
    pub classes: Arc<BTreeMap<ClassKey, BTreeMap<String, FunctionObservation>>>,
}

impl Observations {
    pub fn class(&self, class: &ClassKey) -> Option<&BTreeMap<String, FunctionObservation>> {
        self.classes.get(class)
    }
}

/// What is known about the load of a function. `None` is unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FunctionObservation {
    pub environment: String,
    /// Whether it has a pod that serves.
    pub is_serving: bool,
    /// Requests per second.
    pub throughput: Option<f64>,
    /// In seconds.
    pub latency_p50: Option<f64>,
    pub latency_p95: Option<f64>,
    pub latency_p99: Option<f64>,
    /// Share of the requests of the window that were served, from 0 to 1.
    pub availability: Option<f64>,
    /// CPU cores in use, of all instances.
    pub cpu: Option<f64>,
    /// Working set of the largest instance, in bytes.
    pub memory: Option<f64>,
    /// Instances that are ready.
    pub instances: u32,
    pub samples: Samples,
    pub requirements: Vec<RequirementVerdict>,
    /// What enforcement does, at most one for each dimension.
    pub decisions: Vec<LiveDecision>,
}

/// The measured window, at equal steps. `None` is unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    pub start: Timestamp,
    pub step: Duration,
    /// Requests per second.
    pub throughput: Vec<Option<f64>>,
    /// In seconds.
    pub latency_p95: Vec<Option<f64>>,
}

/// What enforcement does about one dimension of a function, or would do.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveDecision {
    pub dimension: Dimension,
    pub mode: EnforcementMode,
    pub current: f64,
    pub target: f64,
    /// How the target follows from the measurements, in one line.
    pub basis: String,
    /// What the next change waits for; none if nothing has to change.
    pub waits_for: Option<String>,
    /// The kind of what it waits for.
    pub held_by: Option<HeldBy>,
    /// When the next change is possible at the earliest.
    pub next_change_at: Option<Timestamp>,
}

/// What holds a change back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldBy {
    Freeze,
    ForeignAutoscaler,
    InstancesMissing,
    NoEffect,
    /// The time between two raises.
    StepInterval,
    Cooldown,
    Stability,
    /// The difference is too small.
    Tolerance,
    /// The requirement is violated, so nothing is lowered.
    Violated,
    /// Too little is known about the past.
    History,
    /// The user wrote the value.
    Specification,
    /// The highest usage needs what there is.
    Peak,
    /// Instances can't be scheduled.
    Unschedulable,
    /// The class isn't Available.
    Rollout,
}

impl HeldBy {
    /// The metric label `reason`: that of the condition `NfrEnforced`, if it has one.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Freeze => Reason::EnforcementFrozen.as_str(),
            Self::ForeignAutoscaler => Reason::ForeignAutoscaler.as_str(),
            Self::InstancesMissing => Reason::InstancesMissing.as_str(),
            Self::NoEffect => Reason::NoEffect.as_str(),
            Self::StepInterval => "StepInterval",
            Self::Cooldown => "Cooldown",
            Self::Stability => "Stability",
            Self::Tolerance => "Tolerance",
            Self::Violated => Reason::NFRViolated.as_str(),
            Self::History => "History",
            Self::Specification => "Specification",
            Self::Peak => "Peak",
            Self::Unschedulable => Reason::Unschedulable.as_str(),
            Self::Rollout => "Rollout",
        }
    }
}

impl From<Hold> for HeldBy {
    fn from(hold: Hold) -> Self {
        match hold {
            Hold::MissingInstances(_) => Self::InstancesMissing,
            Hold::Stopped(_) => Self::NoEffect,
            Hold::Safeguard(Wait::RaiseInterval(_)) => Self::StepInterval,
            Hold::Safeguard(Wait::Cooldown(_)) => Self::Cooldown,
            Hold::Safeguard(Wait::Stability(_)) => Self::Stability,
            Hold::Safeguard(Wait::Tolerance) => Self::Tolerance,
            Hold::Violated => Self::Violated,
        }
    }
}

impl From<WaitReason> for HeldBy {
    fn from(reason: WaitReason) -> Self {
        match reason {
            WaitReason::Samples { .. } | WaitReason::History { .. } => Self::History,
            WaitReason::Cooldown { .. } => Self::Cooldown,
            WaitReason::Specification { .. } => Self::Specification,
            WaitReason::Peak { .. } => Self::Peak,
            WaitReason::Unschedulable | WaitReason::Reverted => Self::Unschedulable,
        }
    }
}

impl From<MigrationHold> for HeldBy {
    fn from(hold: MigrationHold) -> Self {
        match hold {
            MigrationHold::Stopped(_) => Self::NoEffect,
            MigrationHold::Violated => Self::Violated,
            MigrationHold::Rollout => Self::Rollout,
            MigrationHold::Cooldown(_) => Self::Cooldown,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequirementVerdict {
    pub requirement: Requirement,
    /// In the unit of the requirement; for the hard latency the bound in milliseconds.
    pub required: f64,
    pub verdict: Verdict,
    /// Share of the error budget of the window that is left, from 0 to 1. None if it is unknown.
    pub error_budget: Option<f64>,
}

#[derive(Default)]
pub struct ObservationStore {
    latest: RwLock<Arc<Observations>>,
}

impl ObservationStore {
    pub fn latest(&self) -> Arc<Observations> {
        Arc::clone(&self.latest.read())
    }

    pub fn publish(&self, observations: Observations) {
        *self.latest.write() = Arc::new(observations);
    }
}
