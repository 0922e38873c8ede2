//! Clusters.

use std::collections::BTreeMap;

use crate::{document, string_enum};

string_enum! {
    /// Health of a cluster. HEALTHY: its CRM is reachable and ready. DEGRADED: its CRM is reachable,
    /// but reports a problem. UNREACHABLE: its CRM is not reachable.
    pub enum Health {
        /// The CRM is reachable and ready.
        Healthy,
        /// The CRM is reachable, but reports a problem.
        Degraded,
        /// The CRM is not reachable.
        #[default]
        Unreachable,
    }
}

document! {
    /// A cluster.
    pub struct Cluster {
        /// Name of the cluster.
        pub name: String,
        /// URL of the CRM.
        pub url: String,
        /// Whether deployments without target clusters may be placed here.
        pub default: bool,
        /// Health of the cluster.
        pub health: Health,
        /// Why the cluster is not healthy.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub message: String,
        /// Time of the last contact.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub last_seen: Option<String>,
        /// Number of nodes; absent if the CRM is not permitted to read nodes.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub nodes: Option<usize>,
        /// Number of ready nodes.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub ready_nodes: Option<usize>,
        /// Fraction of nodes that are ready, from 0 to 1.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub availability: Option<f64>,
        /// Capabilities, such as `knative`, `odgm`, `hpa`, `prometheus` (CRM measures requirements) and
        /// `nfr_enforcement` (CRM applies recommendations). One that is missing is unknown.
        pub capabilities: BTreeMap<String, bool>,
        /// Allocatable resources of all nodes.
        pub capacity: BTreeMap<String, String>,
        /// Available templates.
        pub templates: Vec<String>,
        /// Profile of the CRM.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub profile: String,
        /// Number of units on the cluster.
        pub units: usize,
    }
}
