//! The latest measurements of all functions: the analyzer publishes them, metrics and gRPC read them.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::jiff::Timestamp;
use oprc_nfr::compliance::{Requirement, Verdict};
use parking_lot::RwLock;

use crate::signals::ClassKey;

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
    pub requirements: Vec<RequirementVerdict>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequirementVerdict {
    pub requirement: Requirement,
    /// In the unit of the requirement; for the hard latency the bound in milliseconds.
    pub required: f64,
    pub verdict: Verdict,
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
