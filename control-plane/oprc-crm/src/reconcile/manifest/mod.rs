//! What the manifests of all shapes share: metadata, pods, the spec hash, and child objects that
//! belong to more than one shape.

mod autoscaler;
mod deployment;
mod disruption_budget;
mod labels;
mod monitor;
pub(super) mod pod;
pub(super) mod proxy;
mod service;
mod spec_hash;

use k8s_openapi::api::core::v1::ResourceRequirements;
use oprc_unit::{Platform, Selection, Shape, ValidClass};
use serde::Serialize;
use serde_json::Value;

pub use self::labels::{
    COMPONENT, DEPLOYMENT_ID, DNS_NAME, FUNCTION, MANAGED_BY, ODGM_COMPONENT, OWNER, PARTITION,
    PARTITION_REPLICA, RENEW_AFTER, SPEC_HASH, TEMPLATE,
};
pub(super) use self::{
    autoscaler::autoscaler,
    deployment::deployment,
    disruption_budget::budget,
    labels::{Labels, selector},
    monitor::monitor,
    service::{service, service_port},
    spec_hash::add_spec_hash,
};
use crate::kinds::{JOB, Kind};

/// The environment variable of functions whose class has a data grid.
pub const ODGM_ENABLED: &str = "ODGM_ENABLED";
/// The port of the data grid's HTTP and gRPC server.
pub(super) const GRID_PORT: i32 = 8081;
/// The name of the port that calls arrive at: the proxy's or the function's.
pub(super) const HTTP: &str = "http";

#[derive(Clone, Debug, PartialEq)]
pub struct DesiredObject {
    pub kind: Kind,
    pub name: String,
    /// The manifest that is applied.
    pub object: Value,
    /// Created only when the data grid is ready.
    pub waits_for_odgm: bool,
}

impl DesiredObject {
    /// The pod template of a Job is immutable, and a Job isn't created again once it has completed.
    pub fn runs_once(&self) -> bool {
        self.kind == JOB
    }
}

/// How one function runs.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionPlan {
    pub key: String,
    /// The value of [`FUNCTION`].
    pub label: String,
    pub shape: Shape,
    /// The workload's name.
    pub workload: String,
    /// The URL, if it is known before the workload exists.
    pub url: Option<String>,
    /// The number of instances that the specification requires.
    pub min: i32,
    /// The lowest number of instances: at least `min`, and more if enforcement decided so.
    pub floor: i32,
    /// More than `min` means that the number of instances varies. 0 is no maximum (Knative).
    pub max: i32,
    /// Requests and limits of the function's container.
    pub resources: ResourceRequirements,
    /// Whether CRM creates an autoscaler.
    pub autoscaled: bool,
    /// Whether a proxy runs in front of the function. It enforces `max_concurrency`; Knative does
    /// so itself.
    pub proxied: bool,
}

impl FunctionPlan {
    /// Whether there are, or may be, several instances.
    pub fn is_many(&self) -> bool {
        self.floor > 1 || (self.autoscaled && self.max > 1)
    }
}

/// What every builder needs.
pub(super) struct Context<'a> {
    pub(super) class: &'a ValidClass,
    pub(super) platform: &'a Platform,
    pub(super) selection: &'a Selection,
}

/// The manifest of an object without its status.
pub(super) fn desired_object(kind: Kind, object: &impl Serialize) -> DesiredObject {
    let mut object = serde_json::to_value(object).unwrap_or_default();
    if let Some(map) = object.as_object_mut() {
        map.insert("apiVersion".to_owned(), kind.api_version().into());
        map.insert("kind".to_owned(), kind.kind.into());
        map.remove("status");
    }
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    DesiredObject { kind, name: name.to_owned(), object, waits_for_odgm: false }
}
