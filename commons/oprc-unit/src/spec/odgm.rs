//! State of a class, and the data grid that keeps it.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{Consistency, EnvVar, Resources};

/// What a class keeps, and how.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct StateSpec {
    /// What an object of the class is.
    #[serde(default)]
    pub state_type: StateType,
    /// What readers may see.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consistency: Option<Consistency>,
    /// Whether data outlives the pods that keep it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistence: Option<PersistenceMode>,
    /// How it is used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub access_patterns: Vec<AccessPattern>,
}

/// What an object of a class is.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
pub enum StateType {
    /// One of many.
    #[default]
    Normal,
    /// One of many, used many at a time.
    Collection,
    /// The only one.
    Singleton,
}

/// Whether data outlives the pods that keep it.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum PersistenceMode {
    /// It does.
    #[default]
    Persistent,
    /// It doesn't.
    Ephemeral,
}

/// How data is used.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum AccessPattern {
    /// Read and written one by one.
    #[default]
    ReadWrite,
    /// Read only.
    ReadOnly,
    /// Written only.
    WriteOnly,
    /// Read many at a time.
    BatchRead,
}

/// The data grid of a class.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct OdgmConfig {
    /// What it keeps; a bare name serves. Left out, the class's state says what is needed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub collections: Vec<Collection>,
    /// The image, in place of the profile's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub image: Option<String>,
    /// How many nodes the grid has at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 99))]
    pub replicas: Option<i32>,
    /// How many partitions collections have that don't say.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4096))]
    pub partition_count: Option<i32>,
    /// How many copies collections have that don't say.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 99))]
    pub replica_count: Option<i32>,
    /// How shards keep their copies the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard_type: Option<ShardType>,
    /// Which node has which shards, of collections that don't say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4096))]
    pub shard_assignments: Vec<ShardAssignment>,
    /// What the nodes of the grid know each other by.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub cluster_id: Option<String>,
    /// What stands before the number in a node's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    pub node_id_prefix: Option<String>,
    /// Functions that are called when objects change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_processing: Option<EventProcessing>,
    /// Where functions are called, by key; those of the class itself needn't be given.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub invocation_routes: BTreeMap<String, Route>,
    /// The disk of each node of a persistent grid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
    /// What each node asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Resources>,
    /// What each node may not exceed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Resources>,
    /// More environment variables of each node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,
}

/// How shards keep their copies the same.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ShardType {
    /// By consensus.
    Raft,
    /// Some time.
    #[default]
    Basic,
    /// By version trees.
    Mst,
}

/// Which nodes have which shards.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct ShardAssignment {
    /// The node that leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub primary: Option<i32>,
    /// All nodes that have a copy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 99))]
    pub owners: Vec<i32>,
    /// The shards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4096))]
    pub shard_ids: Vec<i32>,
}

/// Where a function is called.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct Route {
    /// Its address.
    #[schemars(length(min = 1, max = 2048), regex(pattern = "^(https?|grpc)://"))]
    pub url: String,
    /// Whether calls need no object.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stateless: bool,
    /// Whether it is called only where no other is there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub standby: bool,
}

/// The disk of a node of the grid.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct Storage {
    /// The storage class, the cluster's own unless said otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub class: Option<String>,
    /// Its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub size: Option<String>,
}

/// Functions that are called when objects change.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct EventProcessing {
    /// Whether there are any; left out, bindings with triggers say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// How many calls may follow from one another.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub max_trigger_depth: Option<i32>,
    /// How long a call may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400_000))]
    pub trigger_timeout_ms: Option<i32>,
    /// Triggers besides those of bindings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub event_triggers: Vec<EventTrigger>,
    /// Changes that are handled many at a time: 100, or those of 1000 ms, unless said otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_processing: Option<BatchProcessing>,
}

/// A function that is called when objects change.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct EventTrigger {
    /// The function.
    #[schemars(length(min = 1, max = 253))]
    pub function_key: String,
    /// The collections, by name or pattern.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub collection_filters: Vec<String>,
    /// Whether the call isn't waited for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub async_execution: bool,
}

/// Changes that are handled many at a time.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct BatchProcessing {
    /// Whether they are; they are unless said otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// How many at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub batch_size: Option<i32>,
    /// How long is waited for more.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 600_000))]
    pub batch_timeout_ms: Option<i32>,
}

/// A collection in full.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct CollectionSpec {
    /// Its name.
    pub name: String,
    /// How many parts it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_count: Option<i32>,
    /// How many copies of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_count: Option<i32>,
    /// How copies are kept the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard_type: Option<ShardType>,
    /// Whether it outlives its pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistence_mode: Option<PersistenceMode>,
    /// How it is used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access_patterns: Vec<AccessPattern>,
    /// Which node has which shards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shard_assignments: Vec<ShardAssignment>,
}

/// A collection: a bare name, or more.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(untagged, try_from = "serde_json::Value")]
pub enum Collection {
    /// A name; the rest follows from the class.
    Name(String),
    /// More than a name.
    Spec(CollectionSpec),
}

impl TryFrom<serde_json::Value> for Collection {
    type Error = String;

    fn try_from(value: serde_json::Value) -> Result<Self, String> {
        match value {
            serde_json::Value::String(name) => Ok(Self::Name(name)),
            value @ serde_json::Value::Object(_) => serde_path_to_error::deserialize(value)
                .map(Self::Spec)
                .map_err(|error| format!("{}: {}", error.path(), error.inner())),
            other => Err(format!("{other} is neither a name nor an object with a name")),
        }
    }
}

impl Default for Collection {
    fn default() -> Self {
        Self::Name(String::new())
    }
}

impl JsonSchema for Collection {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Collection".into()
    }

    /// A structural schema can't say "text or object": what stands here is checked by CRM, which
    /// tells in the status what is wrong.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A bare name, or an object with name, partition_count, replica_count, \
                shard_type (raft, basic, mst), persistence_mode (persistent, ephemeral), \
                access_patterns and shard_assignments (primary, owners, shard_ids).",
            "x-kubernetes-preserve-unknown-fields": true,
        })
    }
}
