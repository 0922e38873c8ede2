//! How a deployment has the data grid of its classes made.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::{AccessPattern, Amount, Assignment, EnvValue, Persistence, ShardType};
use crate::{
    fault::Path,
    macros::{model, words},
    text::{Kind, Node, Read, Reader},
};

model! {
    /// How the data grid of each class of a deployment is made. Goes into `odgm_config` and
    /// `data_retention`.
    Grid {
        /// What it keeps; a bare name serves. Left out, the class's state says what is needed.
        collections: Vec<Collection>,
        /// The image, in place of the profile's own.
        image: Option<String>,
        /// How many nodes it has at least.
        replicas: Option<i32>,
        /// What its nodes know each other by.
        cluster_id: Option<String>,
        /// What stands before the number in a node's name.
        node_id_prefix: Option<String>,
        /// Functions that are called when objects change, besides those that bindings say.
        events | "eventProcessing": Option<Events>,
        /// Where functions of others are called, by key; those of the class itself needn't be given.
        routes | "invocationRoutes": BTreeMap<String, Route>,
        /// The disk of each node of a persistent grid.
        storage: Option<Storage>,
        /// Processor time that a node may not exceed.
        cpu: Option<Amount>,
        /// Memory that a node may not exceed.
        memory: Option<Amount>,
        /// Processor time that a node asks for.
        requests_cpu: Option<Amount>,
        /// Memory that a node asks for.
        requests_memory: Option<Amount>,
        /// More environment variables of each node.
        env: BTreeMap<String, EnvValue>,
        /// What becomes of volume claims when the class is deleted.
        on_delete: Option<OnDelete>,
        /// Whether partitions, shard type and copies of a live persistent collection may be changed,
        /// at the price of its data.
        allow_data_loss: bool,
    }
    refused {
        "enabled" => "a class with state has a data grid, one without has none",
        "partitionCount" => "stands in the deployment itself",
        "replicaCount" => "stands in the deployment itself",
        "shardType" => "stands in the deployment itself",
    }
}

words! {
    /// What becomes of volume claims when their class is deleted.
    OnDelete {
        /// They stay.
        #[default]
        Retain = "RETAIN",
        /// They go with the class.
        Delete = "DELETE",
    }
}

/// A collection: a name, and whatever differs from what follows from the class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Collection(pub CollectionSpec);

model! {
    /// What a collection is made of.
    CollectionSpec {
        /// Its name.
        name: String,
        /// How many parts it has.
        partition_count: Option<i32>,
        /// How many copies of each.
        replica_count: Option<i32>,
        /// How copies are kept the same.
        shard_type: Option<ShardType>,
        /// Whether it outlives its pods.
        persistence | "persistenceMode": Option<Persistence>,
        /// How it is used.
        access_patterns: Vec<AccessPattern>,
        /// Which members have which shards.
        assignments | "shardAssignments": Vec<Assignment>,
    }
}

impl Collection {
    /// One that has nothing but a name.
    pub fn named(name: impl Into<String>) -> Self {
        Self(CollectionSpec { name: name.into(), ..CollectionSpec::default() })
    }

    fn is_bare(&self) -> bool {
        *self == Self::named(self.0.name.as_str())
    }
}

impl Read for Collection {
    fn read(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
        match &node.kind {
            Kind::Scalar { .. } => String::read(node, path, reader).map(Self::named),
            Kind::List(_) | Kind::Map(_) | Kind::Refused => {
                CollectionSpec::read(node, path, reader).map(Self)
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

model! {
    /// Where a function of others is called.
    Route {
        /// Its address.
        url: String,
        /// Whether calls need no object.
        stateless: bool,
        /// Whether it is called only where no other is there.
        standby: bool,
    }
}

model! {
    /// The disk of a node of the grid.
    Storage {
        /// The storage class, the cluster's own unless said otherwise.
        class: Option<String>,
        /// Its size.
        size: Option<Amount>,
    }
}

model! {
    /// Functions that are called when objects change.
    Events {
        /// Whether there are any; left out, bindings with triggers say so.
        enabled: Option<bool>,
        /// How many calls may follow from one another.
        max_trigger_depth: Option<i32>,
        /// How many milliseconds a call may take.
        trigger_timeout | "triggerTimeoutMs": Option<i32>,
        /// Triggers besides those of bindings.
        triggers | "eventTriggers": Vec<Trigger>,
        /// Changes that are handled many at a time.
        batch | "batchProcessing": Option<Batch>,
    }
}

model! {
    /// A function that is called when objects change.
    Trigger {
        /// The function's key.
        function | "functionKey": String,
        /// The collections, by name or pattern.
        collections | "collectionFilters": Vec<String>,
        /// Whether the call isn't waited for.
        async_execution | "async": bool,
    }
}

model! {
    /// Changes that are handled many at a time.
    Batch {
        /// Whether they are; they are unless said otherwise.
        enabled: Option<bool>,
        /// How many at most.
        size | "batchSize": Option<i32>,
        /// How many milliseconds are waited for more.
        timeout | "batchTimeoutMs": Option<i32>,
    }
}
