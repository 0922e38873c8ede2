//! State of a class, and the data grid that stores it.

use std::collections::BTreeMap;

use oprc_models::limits;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{Access, Consistency, EnvVar, Resources, TriggerType};

unit_types! {
    /// State that the objects of a class have.
    StateSpec {
        /// Kind of state: `NORMAL` (many objects, accessed individually), `COLLECTION` (many
        /// objects, also accessed in bulk) or `SINGLETON` (a single object). Defaults to `NORMAL`.
        #[serde(default)]
        state_type: StateType,
        /// Consistency of reads: `strong` or `eventual`. Defaults to the strictest consistency that
        /// the class or a function requires.
        consistency?: Option<Consistency>,
        /// Whether data survives the loss of pods: `persistent` or `ephemeral`. `raft` is always
        /// persistent. Defaults to `persistent` with `raft` and in the profile `full`, otherwise to
        /// `ephemeral`.
        persistence?: Option<PersistenceMode>,
        /// Expected access patterns. Defaults to `read_write`.
        #[schemars(length(max = limits::ACCESS_PATTERNS))]
        access_patterns?: Vec<AccessPattern>,
        /// Keys of the state, at most 512. If there are any, objects have only these keys and those
        /// of references.
        #[schemars(length(max = limits::MEMBERS))]
        #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
        key_specs?: Vec<KeySpec>,
        /// Who may read and write objects without calling a method: `PRIVATE` (the class itself),
        /// `INTERNAL` (workloads in the cluster) or `PUBLIC` (anyone). Defaults to `INTERNAL`.
        access?: Option<Access>,
    }

    /// A key of the state of an object.
    KeySpec {
        /// Name of the key.
        #[schemars(length(min = 1, max = limits::NAME))]
        name: String,
        /// Type of the value: `STRING`, `INTEGER`, `DOUBLE`, `BOOLEAN` or `JSON` (any value). Defaults
        /// to `STRING`.
        #[serde(rename = "type", default)]
        kind: KeyType,
        /// Objects may lack the key. Defaults to false.
        optional?: bool,
        /// The value can't be changed once it is set. Defaults to false.
        immutable?: bool,
    }

    /// A class that objects of this class refer to: an object has the id of the other object, or a
    /// list of ids, below the name of the reference.
    ClassReference {
        /// Name of the reference, and key of the state.
        #[schemars(length(min = 1, max = limits::NAME))]
        name: String,
        /// The class: `package.class`.
        #[schemars(length(min = 1, max = limits::NAME))]
        class: String,
        /// Who may resolve the reference: `PRIVATE` (the class itself), `INTERNAL` (workloads in the
        /// cluster) or `PUBLIC` (anyone). Defaults to `INTERNAL`.
        access?: Option<Access>,
        /// Id of the unit that runs the class in the same namespace. If neither it nor `url` is set,
        /// the reference can't be resolved.
        #[schemars(length(min = 1, max = limits::NAME))]
        unit?: Option<String>,
        /// URL of the data grid of the class, with the scheme `http`. Takes precedence over `unit`.
        #[schemars(length(min = 1, max = limits::ROUTE_URL), regex(pattern = "^http://"))]
        url?: Option<String>,
    }
}

/// Type of a key of the state: `STRING`, `INTEGER`, `DOUBLE`, `BOOLEAN` or `JSON` (any value). Defaults
/// to `STRING`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
pub enum KeyType {
    /// Text.
    #[default]
    String,
    /// A whole number.
    Integer,
    /// A number.
    Double,
    /// `true` or `false`.
    Boolean,
    /// Any value.
    Json,
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
/// keeps it in the pods. Defaults to `persistent` with `raft` and in the profile `full`, otherwise to
/// `ephemeral`.
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

unit_types! {
    /// Configuration of the data grid (ODGM) of a class.
    OdgmConfig {
        /// Collections of the class: names, or objects with a name. All have the same shard type and
        /// persistence. If omitted, one collection is derived from `state`.
        #[schemars(length(max = limits::COLLECTIONS))]
        collections?: Vec<Collection>,
        /// Container image of the grid nodes. Defaults to the image of the profile.
        #[schemars(length(min = 1, max = limits::IMAGE))]
        image?: Option<String>,
        /// Number of grid nodes (pods of the data grid), 1 to 99. A larger
        /// `resource_allocation.replication_factor` or `replica_count` takes precedence; without a
        /// replication factor, the required availability sets a minimum. More than one means `raft`,
        /// whose number of nodes is rounded up to an odd one of at least 3. Defaults to 1.
        #[schemars(range(min = limits::REPLICAS.min, max = limits::REPLICAS.max))]
        replicas?: Option<i32>,
        /// Number of partitions of collections that don't set it, 1 to 4096. Defaults to 1, 4, 8 or
        /// 16, depending on the required throughput.
        #[schemars(range(min = limits::PARTITIONS.min, max = limits::PARTITIONS.max))]
        partition_count?: Option<i32>,
        /// Minimum number of replicas of each partition, 1 to 99. Each grid node holds a replica of
        /// every partition, so it raises the number of grid nodes. Defaults to that number.
        #[schemars(range(min = limits::REPLICAS.min, max = limits::REPLICAS.max))]
        replica_count?: Option<i32>,
        /// Replication protocol of collections that don't set it: `basic` (one copy) or `raft`
        /// (consensus). All collections of a class have the same. `mst` is rejected, as is `basic`
        /// with several grid nodes. Defaults to `raft` with several grid nodes, otherwise to `basic`.
        shard_type?: Option<ShardType>,
        /// Assignment of partitions to members, for collections that don't set it. Has an effect only
        /// with `member_id`; then each partition must have exactly one member.
        #[schemars(length(max = limits::ASSIGNMENTS))]
        shard_assignments?: Vec<ShardAssignment>,
        /// Id of the member of the deployment that this grid belongs to. The grid serves only objects
        /// of partitions that are assigned to this member, and responds to other calls with the member
        /// that does. If omitted, the grid serves all objects.
        #[schemars(range(min = 0))]
        member_id?: Option<i32>,
        /// All members of the deployment, including this one, at most 256. Required with `member_id`.
        #[schemars(length(max = limits::DEPLOYMENT_MEMBERS))]
        members?: Vec<GridMember>,
        /// Id that the grid nodes share. Defaults to `<deployment id>-<environment>-<name>`.
        #[schemars(length(min = 1, max = limits::NAME))]
        cluster_id?: Option<String>,
        /// Prefix of the ids of grid nodes, followed by the number of the grid node. Defaults to
        /// `crm-<environment>-<package>`.
        #[schemars(length(min = 1, max = limits::NODE_ID_PREFIX))]
        node_id_prefix?: Option<String>,
        /// Functions that are called when objects change.
        event_processing?: Option<EventProcessing>,
        /// Addresses of further functions by key, at most 256. Routes to the functions of the class
        /// are added automatically.
        #[schemars(extend("maxProperties" = limits::ROUTES))]
        invocation_routes?: BTreeMap<String, Route>,
        /// PersistentVolumeClaim of each grid node. Used if a collection is persistent.
        storage?: Option<Storage>,
        /// Resources requested for each grid node. Defaults to CRM's configured size.
        requests?: Option<Resources>,
        /// Resource limits of each grid node. Defaults to CRM's configured limits.
        limits?: Option<Resources>,
        /// Additional environment variables of each grid node. Names starting with `ODGM_` are
        /// rejected.
        #[schemars(length(max = limits::GRID_ENV))]
        #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
        env?: Vec<EnvVar>,
    }
}

/// Replication protocol: `basic` (one copy) or `raft` (consensus). `mst` is rejected. Defaults to `raft`
/// with several grid nodes, otherwise to `basic`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ShardType {
    /// Replicas agree by consensus.
    Raft,
    /// One copy.
    #[default]
    Basic,
    /// Rejected.
    Mst,
}

unit_types! {
    /// Assignment of partitions to a member of the deployment.
    ShardAssignment {
        /// Id of the member, as in `owners`.
        #[schemars(range(min = 0))]
        primary?: Option<i32>,
        /// Id of the member whose grid serves the partitions. Only one is allowed with `member_id`:
        /// replicas of a partition are in the grid of its member.
        #[schemars(length(max = limits::OWNERS))]
        owners?: Vec<i32>,
        /// Numbers of the partitions, from 0.
        #[schemars(length(max = limits::ASSIGNMENTS))]
        shard_ids?: Vec<i32>,
    }

    /// A member of the deployment: a data grid with a part of the objects of the class.
    GridMember {
        /// Id of the member.
        #[schemars(range(min = 0))]
        id: i32,
        /// Name of its cluster.
        #[schemars(length(min = 1, max = limits::NAME))]
        cluster: String,
        /// Its environment. If omitted, it has none.
        #[schemars(length(min = 1, max = limits::LABEL))]
        environment?: Option<String>,
        /// URL of its data grid for clients elsewhere, with the scheme `http` or `https`.
        #[schemars(length(min = 1, max = limits::ROUTE_URL), regex(pattern = "^https?://"))]
        url?: Option<String>,
    }

    /// Address of a function.
    Route {
        /// URL of the function, with the scheme `http`, `https` or `grpc`.
        #[schemars(length(min = 1, max = limits::ROUTE_URL), regex(pattern = "^(https?|grpc)://"))]
        url: String,
        /// Calls don't refer to an object. Defaults to false.
        stateless?: bool,
        /// Used only if no other route is available. Defaults to false.
        standby?: bool,
    }

    /// PersistentVolumeClaim of a grid node.
    Storage {
        /// Name of the StorageClass. Defaults to the cluster's default class.
        #[schemars(length(min = 1, max = limits::NAME))]
        class?: Option<String>,
        /// Size of the volume, such as `10Gi`. Defaults to CRM's setting `odgm.disk`.
        #[schemars(length(min = 1, max = limits::QUANTITY))]
        size?: Option<String>,
    }

    /// Functions that are called when objects change.
    EventProcessing {
        /// Enables event processing. Defaults to true if there are triggers.
        enabled?: Option<bool>,
        /// Maximum length of a chain of triggered calls, 1 to 100. Defaults to 5 if the required
        /// latency is below 100 ms, otherwise to 10.
        #[schemars(range(min = limits::TRIGGER_DEPTH.min, max = limits::TRIGGER_DEPTH.max))]
        max_trigger_depth?: Option<i32>,
        /// Timeout of a triggered call in milliseconds, 1 to 86400000. Defaults to half of the
        /// required latency but at least 1000, or to 5000 without a latency requirement.
        #[schemars(range(min = limits::CALL_MS.min, max = limits::CALL_MS.max))]
        trigger_timeout_ms?: Option<i32>,
        /// Triggers in addition to those of bindings with `trigger_on_state_change` and of functions
        /// (`odgm.event_triggers`).
        #[schemars(length(max = limits::TRIGGERS))]
        event_triggers?: Vec<EventTrigger>,
        /// Batching of changes. If omitted, batches have up to 100 changes or 1000 ms.
        batch_processing?: Option<BatchProcessing>,
    }

    /// A function that is called when objects change.
    EventTrigger {
        /// Key of the function to call; must not be disabled.
        #[schemars(length(min = 1, max = limits::NAME))]
        function_key: String,
        /// Names of collections whose changes trigger the call; `*` matches any characters, such as
        /// in `Order_*`. Defaults to all collections.
        #[schemars(length(max = limits::COLLECTIONS), inner(length(min = 1, max = limits::NAME)))]
        collection_filters?: Vec<String>,
        /// Does not wait for the result of the call. Defaults to false.
        async_execution?: bool,
        /// Changes that trigger the call: `STATE_CHANGE` (any), `CREATE`, `UPDATE` or `DELETE`. Defaults
        /// to `STATE_CHANGE`.
        trigger_type?: Option<TriggerType>,
    }

    /// Batching of changes.
    BatchProcessing {
        /// Enables batching. Defaults to true.
        enabled?: Option<bool>,
        /// Maximum number of changes in a batch, 1 to 100000. Defaults to 100.
        #[schemars(range(min = limits::BATCH_SIZE.min, max = limits::BATCH_SIZE.max))]
        batch_size?: Option<i32>,
        /// Maximum time in milliseconds to wait for more changes, 1 to 600000. Defaults to 1000.
        #[schemars(range(min = limits::BATCH_TIMEOUT_MS.min, max = limits::BATCH_TIMEOUT_MS.max))]
        batch_timeout_ms?: Option<i32>,
    }

    /// A collection with its settings. What is omitted follows from the configuration of the grid.
    #[serde(deny_unknown_fields)]
    CollectionSpec {
        name: String,
        #[schemars(range(min = limits::PARTITIONS.min, max = limits::PARTITIONS.max))]
        partition_count?: Option<i32>,
        /// Minimum number of replicas of each partition.
        #[schemars(range(min = limits::REPLICAS.min, max = limits::REPLICAS.max))]
        replica_count?: Option<i32>,
        shard_type?: Option<ShardType>,
        persistence_mode?: Option<PersistenceMode>,
        #[schemars(length(max = limits::ACCESS_PATTERNS))]
        access_patterns?: Vec<AccessPattern>,
        #[schemars(length(max = limits::ASSIGNMENTS))]
        shard_assignments?: Vec<ShardAssignment>,
    }
}

/// A collection: its name, or an object with a name and settings.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(untagged, try_from = "serde_json::Value")]
pub enum Collection {
    Name(String),
    Spec(CollectionSpec),
}

impl Collection {
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Spec(spec) => &spec.name,
        }
    }

    /// The number of copies, if the collection sets one.
    pub fn replica_count(&self) -> Option<i32> {
        match self {
            Self::Name(_) => None,
            Self::Spec(spec) => spec.replica_count,
        }
    }

    /// The shard type, if the collection sets one.
    pub fn shard_type(&self) -> Option<ShardType> {
        match self {
            Self::Name(_) => None,
            Self::Spec(spec) => spec.shard_type,
        }
    }
}

impl From<Collection> for CollectionSpec {
    fn from(collection: Collection) -> Self {
        match collection {
            Collection::Name(name) => Self { name, ..Self::default() },
            Collection::Spec(spec) => spec,
        }
    }
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

    /// A structural schema has no "string or object": CRM validates the items by the schema of
    /// [`CollectionSpec`], and reports violations in the status.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A name, or an object with name, partition_count, replica_count, \
                shard_type (raft, basic), persistence_mode (persistent, ephemeral), \
                access_patterns and shard_assignments (primary, owners, shard_ids).",
            "x-kubernetes-preserve-unknown-fields": true,
        })
    }
}
