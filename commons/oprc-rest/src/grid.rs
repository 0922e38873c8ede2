//! What data grids report about themselves.

use crate::document;

document! {
    /// The data grid of a unit as it describes itself.
    pub struct UnitGrid {
        /// Id of the unit.
        pub id: String,
        /// Name of the cluster.
        pub cluster: String,
        /// Environment; empty: no environment.
        pub environment: String,
        /// Key of the class.
        pub class: String,
        /// Address of the Service; empty if the cluster has not reported it yet.
        pub service: String,
        /// Whether all nodes were ready when the cluster last reported the unit's status.
        pub ready: bool,
        /// Number of nodes that the grid should have.
        pub replicas: i32,
        /// Why the grid or its cluster doesn't respond. The fields below are unknown then, except for
        /// the names of collections.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub error: Option<String>,
        /// Nodes of the grid.
        pub nodes: Vec<GridNode>,
        /// Id of the leading node; empty if there is none.
        pub leader: String,
        /// Partitions of all collections that a node serves.
        pub active_shards: u32,
        /// Partitions of all collections.
        pub total_shards: u32,
        /// Collections of the class.
        pub collections: Vec<GridCollection>,
        /// Used bytes of the store; absent if the grid isn't replicated.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub store_bytes: Option<u64>,
        /// Bytes that the store may use; absent if the grid isn't replicated.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub store_quota_bytes: Option<u64>,
        /// Whether most of the quota is used.
        pub low_on_space: bool,
    }

    /// A node of a data grid.
    pub struct GridNode {
        /// Id of the node.
        pub id: String,
        /// URL within the cluster.
        pub address: String,
        /// `active`, `starting`, `joining`, `learner`, `leaving`, `removed` or `unreachable`.
        pub status: String,
        /// When the node last responded.
        pub last_heartbeat: String,
    }

    /// A collection of objects.
    pub struct GridCollection {
        /// Name of the collection.
        pub name: String,
        /// Number of partitions.
        pub partitions: Option<u32>,
        /// Partitions that a node serves.
        pub active_partitions: Option<u32>,
        /// Number of objects.
        pub objects: Option<u64>,
    }
}
