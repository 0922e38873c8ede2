//! State of a class, and the data grid that stores it.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{Consistency, EnvVar, Resources};

/// State that the objects of a class have.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct StateSpec {
    /// Kind of state: `NORMAL` (many objects, accessed individually), `COLLECTION` (many objects,
    /// also accessed in bulk) or `SINGLETON` (a single object). Defaults to `NORMAL`.
    #[serde(default)]
    pub state_type: StateType,
    /// Consistency of reads: `strong` or `eventual`. Defaults to the strictest consistency that the
    /// class or a function requires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consistency: Option<Consistency>,
    /// Whether data survives the loss of pods: `persistent` or `ephemeral`. Defaults to
    /// `persistent` in the profile `full`, otherwise to `ephemeral`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistence: Option<PersistenceMode>,
    /// Expected access patterns. Defaults to `read_write`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub access_patterns: Vec<AccessPattern>,
}

/// Kind of state of a class: `NORMAL` (many objects, accessed individually), `COLLECTION` (many
/// objects, also accessed in bulk) or `SINGLETON` (a single object). Defaults to `NORMAL`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
pub enum StateType {
    /// Many objects, accessed individually.
    #[default]
    Normal,
    /// Many objects, also accessed in bulk.
    Collection,
    /// A single object.
    Singleton,
}

/// Whether data survives the loss of pods: `persistent` stores it on PersistentVolumes, `ephemeral`
/// keeps it in the pods. Defaults to `persistent` in the profile `full`, otherwise to `ephemeral`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum PersistenceMode {
    /// Stored on PersistentVolumes.
    #[default]
    Persistent,
    /// Lost with the pods.
    Ephemeral,
}

/// Access pattern of data: `read_write`, `read_only`, `write_only` or `batch_read`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum AccessPattern {
    /// Individual reads and writes.
    #[default]
    ReadWrite,
    /// Reads only.
    ReadOnly,
    /// Writes only.
    WriteOnly,
    /// Reads of many objects at once.
    BatchRead,
}

/// Configuration of the data grid (ODGM) of a class.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct OdgmConfig {
    /// Collections of the class: names, or objects with a name. If omitted, one collection is
    /// derived from `state`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub collections: Vec<Collection>,
    /// Container image of the nodes. Defaults to the image of the profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub image: Option<String>,
    /// Minimum number of nodes, 1 to 99. A larger `resource_allocation.replication_factor` takes
    /// precedence. Defaults to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 99))]
    pub replicas: Option<i32>,
    /// Number of partitions of collections that don't set it, 1 to 4096. Defaults to 1, 4, 8 or 16,
    /// depending on the required throughput.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4096))]
    pub partition_count: Option<i32>,
    /// Number of replicas of each partition of collections that don't set it, 1 to 99, limited by
    /// the number of nodes. Defaults to 2, or to 3 for the collections of `COLLECTION` and
    /// `SINGLETON` state. With `raft`, 2 replicas become 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 99))]
    pub replica_count: Option<i32>,
    /// Replication protocol of collections that don't set it: `raft`, `basic` or `mst`. If omitted,
    /// it depends on replicas, latency and consistency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard_type: Option<ShardType>,
    /// Assignment of shards to nodes, for collections that don't set it. If omitted, the grid
    /// assigns them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4096))]
    pub shard_assignments: Vec<ShardAssignment>,
    /// Id that the nodes of the grid share. Defaults to `<deployment id>-<environment>-<name>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub cluster_id: Option<String>,
    /// Prefix of the node ids, followed by the number of the node. Defaults to
    /// `crm-<environment>-<package>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    pub node_id_prefix: Option<String>,
    /// Functions that are called when objects change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_processing: Option<EventProcessing>,
    /// Addresses of further functions by key, at most 256. Routes to the functions of the class are
    /// added automatically.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub invocation_routes: BTreeMap<String, Route>,
    /// PersistentVolumeClaim of each node. Used if a collection is persistent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
    /// Resources requested for each node. Defaults to CRM's configured size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Resources>,
    /// Resource limits of each node. Defaults to CRM's configured limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Resources>,
    /// Additional environment variables of each node. Names starting with `ODGM_` are rejected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,
}

/// Replication protocol: `raft` (consensus), `basic` (no consensus) or `mst` (eventual consistency
/// by Merkle search trees). If omitted, it depends on replicas, latency and consistency.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ShardType {
    /// Replicas agree by consensus.
    Raft,
    /// Replicas are updated without consensus.
    #[default]
    Basic,
    /// Replicas converge by Merkle search trees.
    Mst,
}

/// Assignment of shards to nodes.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct ShardAssignment {
    /// Number of the primary node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub primary: Option<i32>,
    /// Numbers of all nodes that hold a replica.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 99))]
    pub owners: Vec<i32>,
    /// Ids of the assigned shards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4096))]
    pub shard_ids: Vec<i32>,
}

/// Address of a function.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct Route {
    /// URL of the function, with the scheme `http`, `https` or `grpc`.
    #[schemars(length(min = 1, max = 2048), regex(pattern = "^(https?|grpc)://"))]
    pub url: String,
    /// Calls don't refer to an object. Defaults to false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stateless: bool,
    /// Marks the function as a standby function. Defaults to false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub standby: bool,
}

/// PersistentVolumeClaim of a data grid node.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct Storage {
    /// Name of the StorageClass. Defaults to the cluster's default class.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub class: Option<String>,
    /// Size of the volume, such as `10Gi`. Defaults to CRM's setting `odgm.disk`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub size: Option<String>,
}

/// Functions that are called when objects change.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct EventProcessing {
    /// Enables event processing. Defaults to true if there are triggers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Maximum length of a chain of triggered calls, 1 to 100. Defaults to 5 if the required
    /// latency is below 100 ms, otherwise to 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub max_trigger_depth: Option<i32>,
    /// Timeout of a triggered call in milliseconds, 1 to 86400000. Defaults to half of the required
    /// latency but at least 1000, or to 5000 without a latency requirement.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400_000))]
    pub trigger_timeout_ms: Option<i32>,
    /// Triggers in addition to those of bindings with `trigger_on_state_change`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub event_triggers: Vec<EventTrigger>,
    /// Batching of changes. If omitted, batches have up to 100 changes or 1000 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_processing: Option<BatchProcessing>,
}

/// A function that is called when objects change.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct EventTrigger {
    /// Key of a function of the class that runs.
    #[schemars(length(min = 1, max = 253))]
    pub function_key: String,
    /// Names or patterns of collections whose changes trigger the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub collection_filters: Vec<String>,
    /// Does not wait for the result of the call. Defaults to false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub async_execution: bool,
}

/// Batching of changes.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct BatchProcessing {
    /// Enables batching. Defaults to true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Maximum number of changes in a batch, 1 to 100000. Defaults to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub batch_size: Option<i32>,
    /// Maximum time in milliseconds to wait for more changes, 1 to 600000. Defaults to 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 600_000))]
    pub batch_timeout_ms: Option<i32>,
}

/// A collection with its settings. What is omitted follows from the configuration of the grid.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct CollectionSpec {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_count: Option<i32>,
    /// Replicas of each partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_count: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard_type: Option<ShardType>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistence_mode: Option<PersistenceMode>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access_patterns: Vec<AccessPattern>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shard_assignments: Vec<ShardAssignment>,
}

/// A collection: its name, or an object with a name and settings.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(untagged, try_from = "serde_json::Value")]
pub enum Collection {
    Name(String),
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

    /// A structural schema has no "string or object": CRM validates the items, and reports
    /// violations in the status.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A name, or an object with name, partition_count, replica_count, \
                shard_type (raft, basic, mst), persistence_mode (persistent, ephemeral), \
                access_patterns and shard_assignments (primary, owners, shard_ids).",
            "x-kubernetes-preserve-unknown-fields": true,
        })
    }
}
