//! Configuration of the data grid (ODGM).

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::{AccessPattern, Assignment, EnvValue, Persistence, Quantity, ShardType, TriggerType};
use crate::{
    diagnostics::Path,
    macros::{models, string_enums},
    yaml::{FromNode, Kind, Node, Reader},
};

models! {
    /// Configuration of the data grid of each class of a deployment. Sent to CRM as `odgm_config` and
    /// `data_retention`.
    Grid {
        /// Collections: names, or objects with settings. By default derived from the state of the
        /// class.
        collections: Vec<Collection>,
        /// Container image; the default is that of the profile.
        image: Option<String>,
        /// Minimum number of nodes.
        replicas: Option<i32>,
        /// Cluster id shared by the nodes.
        cluster_id: Option<String>,
        /// Prefix of node ids, followed by the number of the node.
        node_id_prefix: Option<String>,
        /// Functions to call on state changes, in addition to those of bindings.
        events | "eventProcessing": Option<Events>,
        /// URLs of functions of other classes, by key. Functions of the class itself need no route.
        routes | "invocationRoutes": BTreeMap<String, Route>,
        /// Volume of each node of a persistent grid.
        storage: Option<Storage>,
        /// CPU limit of a node, such as `500m`.
        cpu: Option<Quantity>,
        /// Memory limit of a node, such as `256Mi`.
        memory: Option<Quantity>,
        /// CPU request of a node.
        requests_cpu: Option<Quantity>,
        /// Memory request of a node.
        requests_memory: Option<Quantity>,
        /// Additional environment variables of each node.
        env: BTreeMap<String, EnvValue>,
        /// Handling of persistent volume claims when the class is deleted.
        on_delete: Option<OnDelete>,
        /// Allows changes of partitions, replicas and shard type of an existing persistent collection,
        /// which lose its data.
        allow_data_loss: bool,
    }
    => rejected {
        "enabled" => "a class has a data grid if it has state",
        "partitionCount" => "set it on the deployment itself",
        "replicaCount" => "set it on the deployment itself",
        "shardType" => "set it on the deployment itself",
    }
}

string_enums! {
    /// Handling of persistent volume claims when their class is deleted.
    OnDelete {
        #[default]
        Retain = "RETAIN",
        Delete = "DELETE",
    }
}

/// A collection. Serialised as a string if it has only a name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Collection(pub CollectionSpec);

models! {
    /// Settings of a collection.
    CollectionSpec {
        /// Name of the collection, unique in the grid.
        name: String,
        /// Number of partitions.
        partition_count: Option<i32>,
        /// Number of replicas of each partition.
        replica_count: Option<i32>,
        /// Replication protocol of its shards.
        shard_type: Option<ShardType>,
        /// Whether its data survives the pods that store it.
        persistence | "persistenceMode": Option<Persistence>,
        /// Expected use of its data.
        access_patterns: Vec<AccessPattern>,
        /// Shards of each member.
        assignments | "shardAssignments": Vec<Assignment>,
    }
}

impl Collection {
    pub fn named(name: impl Into<String>) -> Self {
        Self(CollectionSpec { name: name.into(), ..CollectionSpec::default() })
    }

    fn is_bare(&self) -> bool {
        *self == Self::named(self.0.name.as_str())
    }
}

impl FromNode for Collection {
    fn from_node(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
        match &node.kind {
            Kind::Scalar { .. } => String::from_node(node, path, reader).map(Self::named),
            Kind::List(_) | Kind::Map(_) | Kind::Invalid => {
                CollectionSpec::from_node(node, path, reader).map(Self)
            }
        }
    }
}

impl Serialize for Collection {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.is_bare() { to.serialize_str(&self.0.name) } else { self.0.serialize(to) }
    }
}

impl<'de> serde::Deserialize<'de> for Collection {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged)]
        enum Either {
            Name(String),
            Spec(CollectionSpec),
        }
        Ok(match Either::deserialize(from)? {
            Either::Name(name) => Self::named(name),
            Either::Spec(spec) => Self(spec),
        })
    }
}

models! {
    /// Route to a function of another class.
    Route {
        /// URL of the function: http, https or grpc.
        url: String,
        /// Whether calls have no object.
        stateless: bool,
        /// Whether the route is used only if no other is available.
        standby: bool,
    }

    /// Volume of a grid node.
    Storage {
        /// Storage class; the default is that of the cluster.
        class: Option<String>,
        /// Size of the volume, such as `1Gi`.
        size: Option<Quantity>,
    }

    /// Functions to call on state changes.
    Events {
        /// Whether triggers are active; by default they are if any binding has one.
        enabled: Option<bool>,
        /// Maximum length of a chain of triggered calls.
        max_trigger_depth: Option<i32>,
        /// Timeout of a triggered call in milliseconds.
        trigger_timeout | "triggerTimeoutMs": Option<i32>,
        /// Triggers in addition to those of bindings.
        triggers | "eventTriggers": Vec<Trigger>,
        /// Batch processing of changes.
        batch | "batchProcessing": Option<Batch>,
    }

    /// A function to call on state changes.
    Trigger {
        /// Key of the function.
        function | "functionKey": String,
        /// Names or patterns of collections; by default all.
        collections | "collectionFilters": Vec<String>,
        /// Whether the call runs asynchronously.
        async_execution | "async": bool,
        /// Kind of change; by default any.
        trigger_type | "type": Option<TriggerType>,
    }

    /// Batch processing of changes.
    Batch {
        /// The default is true.
        enabled: Option<bool>,
        /// Maximum number of changes in a batch.
        size | "batchSize": Option<i32>,
        /// Milliseconds to wait for a batch to fill.
        timeout | "batchTimeoutMs": Option<i32>,
    }
}
