//! What became of a class. Holds transitions and decisions, not live figures.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use oprc_unit::SelectionStatus;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// What became of a class.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct ClassRuntimeStatus {
    /// Where the class is in its life.
    #[serde(default)]
    pub phase: Phase,
    /// Why, in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How many components are ready, of how many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// The generation that this status is about.
    #[serde(rename = "observedGeneration", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions, for `kubectl wait`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The template that was chosen, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selection: Option<SelectionStatus>,
    /// What was made for the class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub resource_refs: Vec<ResourceRef>,
    /// How each function is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["key".into()]))]
    pub functions: Vec<FunctionStatus>,
    /// How the data grid is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub odgm: Option<OdgmStatus>,
    /// Persistent collections that there may be claims for; what they are made of is protected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub kept_collections: Vec<OdgmCollectionStatus>,
    /// How many nodes of the data grid there may be claims for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_nodes: Option<i32>,
    /// Since when each component has been ready without a break.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stable_since: BTreeMap<String, Time>,
    /// Since when the class has been on its way to Available; its deadline counts from here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_since: Option<Time>,
    /// What was Available last, kept where the class wants to go back to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_available: Option<LastAvailable>,
    /// The generation that missed its deadline and was taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolled_back: Option<i64>,
    /// What a change of template is replacing, or a data grid that was switched off; their
    /// addresses go on answering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced: Option<Replaced>,
    /// What enforcement would change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub nfr_recommendations: Vec<Recommendation>,
    /// What enforcement changed last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub last_applied_recommendations: Vec<Recommendation>,
    /// When it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_applied_at: Option<Time>,
    /// When this status was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    // Fields of the data-loss guard that couldn't be decoded, as they were found. They are written back
    // under their own names (`decode::encode_status`).
    #[serde(skip_deserializing, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(skip)]
    pub unreadable: BTreeMap<String, serde_json::Value>,
}

/// Where a class is in its life.
///
/// ```text
/// Pending → Applying → Progressing → Available
///    └─────────┴────────────┴───────────┴──→ Degraded (and back)      any → Deleting
/// ```
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Seen, and nothing done about it yet.
    #[default]
    Pending,
    /// Objects are being written.
    Applying,
    /// Objects are written and not all ready.
    Progressing,
    /// Everything is ready.
    Available,
    /// Something is wrong; the reason says what.
    Degraded,
    /// It is going.
    Deleting,
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::Applying,
        Self::Progressing,
        Self::Available,
        Self::Degraded,
        Self::Deleting,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Applying => "Applying",
            Self::Progressing => "Progressing",
            Self::Available => "Available",
            Self::Degraded => "Degraded",
            Self::Deleting => "Deleting",
        }
    }
}

/// An object that was made for a class.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceRef {
    /// Its group and version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uid: String,
}

/// How a function is.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct FunctionStatus {
    /// Its key.
    pub key: String,
    /// What it runs as: `k8s_deployment`, `knative` or `job`; left out, it has no container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs_as: Option<String>,
    /// Whether it is ready.
    #[serde(default)]
    pub ready: bool,
    /// Where it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Where it answers everybody, where it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_url: Option<String>,
    /// The generation for which it ran to completion, where it is to do that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed: Option<i64>,
    /// Why it isn't ready, in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why it isn't ready, in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How the data grid of a class is.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct OdgmStatus {
    /// Whether every node is ready.
    #[serde(default)]
    pub ready: bool,
    /// Where it answers.
    pub service: String,
    /// How many nodes it has.
    pub replicas: i32,
    /// What it keeps, as it was generated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub collections: Vec<OdgmCollectionStatus>,
    /// Why it isn't ready, in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why it isn't ready, in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A collection, as it was generated.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct OdgmCollectionStatus {
    /// Its name.
    pub name: String,
    /// How many parts it has.
    pub partition_count: i32,
    /// How many copies of each.
    pub replica_count: i32,
    /// How copies are kept the same.
    pub shard_type: String,
    /// Whether it outlives its pods.
    pub persistence_mode: String,
}

/// What a class was when it was Available last.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct LastAvailable {
    /// Its generation then.
    pub generation: i64,
    /// Its specification then.
    pub spec: AnyObject,
    /// The template and the profile that it had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selection: Option<SelectionStatus>,
}

/// Any JSON object, kept as it is.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(transparent)]
pub struct AnyObject(pub serde_json::Value);

impl JsonSchema for AnyObject {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AnyObject".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
    }
}

/// What a change of template is replacing, or a data grid that was switched off.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Replaced {
    /// When nobody needed them any more; they answer for a while after that.
    pub since: Time,
    /// The objects that are to go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub resource_refs: Vec<ResourceRef>,
}

/// A change that enforcement would make, or made.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct Recommendation {
    /// The component: a function's key, or `odgm`.
    pub component: String,
    /// What is to change.
    pub dimension: String,
    /// To what.
    pub target: f64,
    /// What it is based on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basis: Option<String>,
    /// How sure it is, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// The generation that it was made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
}
