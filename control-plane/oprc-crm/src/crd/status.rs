//! Status of the ClassRuntime resource. It holds transitions and decisions, not live metrics.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use oprc_nfr::{Stopped, compliance::State};
pub use oprc_unit::Phase;
use oprc_unit::{SelectionStatus, UnitSpec};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Observed state of the ClassRuntime.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct ClassRuntimeStatus {
    /// Phase of the class: `Pending` (waits to be reconciled), `Applying` (objects are being
    /// applied), `Progressing` (not all components are ready), `Available` (all components are
    /// ready), `Degraded` (failed, see the reason) or `Deleting` (terminating).
    #[serde(default)]
    pub phase: Phase,
    /// Machine-readable reason for the phase, in CamelCase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Human-readable explanation of the phase, at most 2048 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Components as `ready/all`, such as `2/3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// Number of the generation of the spec that this status describes.
    #[serde(rename = "observedGeneration", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions of the class. CRM sets Available, Progressing, Degraded and ForeignAutoscaler (True
    /// if an autoscaler that CRM does not own scales a function). If a function has requirements, it sets
    /// NfrObserved (whether they are measured), NfrEnforced (whether enforcement does what they need, in
    /// mode enforce), and PrometheusDisabled (True if CRM reads no metrics although Prometheus is
    /// configured).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Selected template with the reason for its selection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selection: Option<SelectionStatus>,
    /// Objects created for the class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub resource_refs: Vec<ResourceRef>,
    /// Status of each function.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["key".into()]))]
    pub functions: Vec<FunctionStatus>,
    /// Status of the data grid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub odgm: Option<OdgmStatus>,
    /// Persistent collections whose PersistentVolumeClaims may still exist. Changes that would
    /// discard their data are rejected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub kept_collections: Vec<OdgmCollectionStatus>,
    /// Number of grid nodes whose PersistentVolumeClaims may still exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_nodes: Option<i32>,
    /// Times since which components have been ready. Keys are function keys, or `addon:odgm` for
    /// the data grid.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "times_by_key")]
    pub stable_since: BTreeMap<String, Time>,
    /// Start of the current rollout. The progress deadline is measured from this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_since: Option<Time>,
    /// Last specification that was Available, which a rollback restores. Stored if
    /// `rollout.rollback` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_available: Option<LastAvailable>,
    /// Number of the generation that missed its progress deadline and was rolled back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolled_back: Option<i64>,
    /// Objects being drained: replaced by a change of template, or belonging to a removed data
    /// grid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced: Option<Replaced>,
    /// What enforcement applies, or would apply if it were turned on for the class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["component".into(), "dimension".into()]))]
    pub nfr_recommendations: Vec<Recommendation>,
    /// What enforcement applies now, if it differs from what the specification requires: for
    /// `replicas` the lowest number of instances, for `memory` and `cpu` the request, for `template` the
    /// workload of the function.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["component".into(), "dimension".into()]))]
    pub last_applied_recommendations: Vec<Recommendation>,
    /// Time at which enforcement last changed anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_applied_at: Option<Time>,
    /// The latest changes by enforcement, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub nfr_history: Vec<NfrChange>,
    /// Compliance of functions with their requirements, written when a state changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["function".into(), "requirement".into()]))]
    pub nfr_compliance: Vec<RequirementStatus>,
    /// Out-of-memory kills of functions in the last 7 days.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["function".into()]))]
    pub oom_kills: Vec<OomKillStatus>,
    /// Time at which this status was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    // Fields of the data-loss guard that couldn't be decoded, as they were found. They are written back
    // under their own names (`decode::encode_status`).
    #[serde(skip_deserializing, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(skip)]
    pub unreadable: BTreeMap<String, serde_json::Value>,
}

/// An object created for a class.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceRef {
    /// API group and version of the object.
    pub api_version: String,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// UID of the object.
    pub uid: String,
}

/// Status of a function.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct FunctionStatus {
    /// Key of the function.
    pub key: String,
    /// Workload of the function, such as `k8s_deployment` or `knative`. Omitted for a function
    /// without a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs_as: Option<String>,
    /// Whether the function is ready.
    #[serde(default)]
    pub ready: bool,
    /// URL of the function within the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Public URL of the function, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_url: Option<String>,
    /// Number of the generation for which the function's Job completed. Set for Jobs only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed: Option<i64>,
    /// Machine-readable reason why the function is not ready, in CamelCase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Human-readable explanation of why the function is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Whether the function can work with the data grid of the class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub odgm_connection_status: Option<OdgmConnectionStatus>,
}

/// Whether a function can work with the data grid of its class: `Connected` (the grid serves and the
/// function is ready) or `WaitingForDataGrid` (the grid doesn't serve). Omitted if the function is not
/// ready for another reason, or if the class has no data grid.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum OdgmConnectionStatus {
    /// The grid serves and the function is ready.
    Connected,
    /// The grid doesn't serve.
    WaitingForDataGrid,
}

impl OdgmConnectionStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "Connected",
            Self::WaitingForDataGrid => "WaitingForDataGrid",
        }
    }
}

/// Status of the data grid of a class.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct OdgmStatus {
    /// Whether all grid nodes are ready.
    #[serde(default)]
    pub ready: bool,
    /// Address of the grid's Service.
    pub service: String,
    /// Desired number of grid nodes.
    pub replicas: i32,
    /// Collections with their effective settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub collections: Vec<OdgmCollectionStatus>,
    /// Machine-readable reason why the grid is not ready, in CamelCase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Human-readable explanation of why the grid is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Effective settings of a collection.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct OdgmCollectionStatus {
    /// Name of the collection.
    pub name: String,
    /// Number of partitions.
    pub partition_count: i32,
    /// Replicas of each partition.
    pub replica_count: i32,
    /// Replication protocol: `raft` or `basic`.
    pub shard_type: String,
    /// `persistent` or `ephemeral`.
    pub persistence_mode: String,
    /// Partitions that the grid serves, such as `0-3,7`, or the digest of a long list. If omitted, it
    /// serves all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member_partitions: Option<String>,
}

/// Last specification of a class that was Available.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct LastAvailable {
    /// Number of the generation of the specification.
    pub generation: i64,
    /// The specification.
    #[schemars(schema_with = "any_object")]
    pub spec: UnitSpec,
    /// Template and profile selected for the specification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selection: Option<SelectionStatus>,
}

/// Without the description of `Time`, which documents its Go type.
fn times_by_key(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": {"type": "string", "format": "date-time"},
    })
}

/// The API server checks a specification when it is admitted, and not again in the status.
fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Objects being drained: replaced by a change of template, or belonging to a removed data grid.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Replaced {
    /// Time since which the objects are no longer needed. They are deleted after the drain time.
    pub since: Time,
    /// Objects to delete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub resource_refs: Vec<ResourceRef>,
}

/// Compliance of a function with one of its requirements.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct RequirementStatus {
    /// Key of the function.
    pub function: String,
    /// Requirement: `throughput`, `latency`, `availability` or `hard_latency`.
    pub requirement: String,
    /// State: `met`, `violated` or `unknown`.
    pub state: ComplianceState,
    /// Machine-readable reason why the state is unknown, in CamelCase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time of the transition to this state.
    pub since: Time,
    /// Required value: requests per second, milliseconds, or the availability as a fraction.
    pub required: f64,
    /// Value at the transition, in the same unit. For `hard_latency` requests per second that took
    /// longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed: Option<f64>,
}

/// Whether a requirement is met: `met`, `violated` or `unknown`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ComplianceState {
    /// The requirement is met, or there are no requests.
    Met,
    /// The requirement is not met.
    Violated,
    /// There are no current metrics.
    #[default]
    Unknown,
}

impl From<State> for ComplianceState {
    fn from(state: State) -> Self {
        match state {
            State::Met => Self::Met,
            State::Violated => Self::Violated,
            State::Unknown(_) => Self::Unknown,
        }
    }
}

impl ComplianceState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Violated => "violated",
            Self::Unknown => "unknown",
        }
    }
}

/// A value that enforcement recommends or applies.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct Recommendation {
    /// Component to change: the key of a function, or `addon:odgm` for the data grid.
    pub component: String,
    /// What to change: `replicas`, `memory` (bytes), `cpu` (cores) or `template` (1 for `knative`, 0 for
    /// `k8s_deployment`).
    pub dimension: String,
    /// Recommended value.
    pub target: f64,
    /// Recommended template by name. For `template`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Lowest allowed value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// Highest allowed value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// Time at which the target was set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// How the target followed from the measurements when it was set, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basis: Option<String>,
    /// Confidence from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// Number of the generation that the recommendation was made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Seconds that an instance is busy with one request, as learned from its load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_time: Option<f64>,
    /// Factor by which observed violations lengthened `service_time`, from 1 to 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correction: Option<f64>,
    /// Time of these violations. After a day, `correction` fades.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correction_at: Option<Time>,
    /// Limit that goes with the target, which is the request. For `memory` and `cpu` of functions with
    /// a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// Hash of the image and the specified resources that the value was decided for. With others it is
    /// not applied. For `memory` and `cpu`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made_for: Option<String>,
    /// What instances had before the latest change. It is restored if instances with the target can't
    /// be scheduled. Omitted if that is the specification. For `memory` and `cpu`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<PreviousValue>,
    /// Whether the latest change helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<EffectStatus>,
}

/// Request and limit that enforcement applied before.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct PreviousValue {
    /// Request.
    pub target: f64,
    /// Limit that goes with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
}

/// Out-of-memory kills of the instances of a function.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct OomKillStatus {
    /// Key of the function.
    pub function: String,
    /// Time of the last kill.
    pub at: Time,
    /// Number of kills since the image or the specified resources last changed.
    pub count: i32,
    /// Highest memory limit in bytes at which an instance was killed. Omitted without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// Hash of the image and the specified resources of the instances.
    pub made_for: String,
}

/// Whether the latest change improved what it was made for.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct EffectStatus {
    /// 95th percentile of latency in milliseconds before the change. Omitted once the effect is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<f64>,
    /// Requests per second and instance before the change. Omitted once the effect is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// Number of consecutive changes without effect. For `template`, of migrations that reversed the one
    /// before.
    #[serde(default)]
    pub ineffective: i32,
    /// Why the value is not raised any more: `NoEffect` or `Worse` (more instances did not shorten the
    /// latency, or made it longer), `KilledAgain` (more memory did not prevent out-of-memory kills),
    /// `Unschedulable` (a higher request), or for `template` `Violated`, `NotReady` (after a migration) or
    /// `ColdStarts`. Removed when the requirement is met again or the
    /// specification changes; after a raise that couldn't be scheduled when the image or the specified
    /// resources change. For `template`, why it is not changed until the specification is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

impl EffectStatus {
    pub fn stopped(reason: Stopped) -> Self {
        Self { stopped: Some(reason.as_str().to_owned()), ..Self::default() }
    }

    /// Why the value isn't changed any more. None also for a name of another version.
    pub fn reason(&self) -> Option<Stopped> {
        self.stopped.as_deref().and_then(Stopped::parse)
    }
}

/// A change that enforcement made.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct NfrChange {
    /// Time of the change.
    pub at: Time,
    /// Component that was changed: the key of a function, or `addon:odgm` for the data grid.
    pub component: String,
    /// What was changed: `replicas`, `memory` (bytes), `cpu` (cores) or `template` (1 for `knative`, 0 for
    /// `k8s_deployment`).
    pub dimension: String,
    /// Value before the change.
    pub from: f64,
    /// Value after the change.
    pub to: f64,
    /// Why it was changed, in one line.
    pub basis: String,
}
