//! Observed units and ClassRuntimes.

use std::collections::BTreeMap;

use crate::{
    NfrChange, NfrCompliance, NfrObserved, OomKills, Recommendation, document, string_enum,
};

string_enum! {
    /// Condition of a unit or a function. PENDING: not started. DEPLOYING: being rolled out. RUNNING:
    /// running. DOWN: failed, not running. DELETED: being deleted, or deleted.
    pub enum Condition {
        /// Not started.
        #[default]
        Pending,
        /// Being rolled out.
        Deploying,
        /// Running.
        Running,
        /// Failed, not running.
        Down,
        /// Being deleted, or deleted.
        Deleted,
    }

    /// Whether the reported status of a unit is up to date. FRESH: it is up to date. STALE: it is
    /// outdated, because the cluster or its API server is unreachable. UNCONFIGURED: the cluster is no
    /// longer configured in PM. UNKNOWN: the cluster has never reported a status.
    pub enum Contact {
        /// The status is up to date.
        #[default]
        Fresh,
        /// The status is outdated: the cluster or its API server is unreachable.
        Stale,
        /// The cluster is no longer configured in PM.
        Unconfigured,
        /// The cluster has never reported a status.
        Unknown,
    }
}

document! {
    /// Observed status of a unit.
    pub struct UnitStatus {
        /// Id of the unit.
        pub id: String,
        /// Name of the cluster.
        pub cluster: String,
        /// Environment; empty: no environment.
        pub environment: String,
        /// Namespace of the unit.
        pub namespace: String,
        /// Key of the class.
        pub class: String,
        /// Summary state of the unit.
        pub condition: Condition,
        /// Phase reported by CRM: Pending, Applying, Progressing, Available, Degraded, Deleting.
        pub phase: String,
        /// Machine-readable reason if the unit is not Available.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub reason: String,
        /// Human-readable explanation of the reason.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub message: String,
        /// Selected template.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub template: String,
        /// Whether the cluster runs the planned spec.
        pub current: bool,
        /// Whether this status is up to date.
        pub contact: Contact,
        /// Time of the last change of the phase.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub since: String,
        /// Status of each function.
        pub functions: Vec<FunctionStatus>,
        /// Status of the data grid, if the unit has one.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub odgm: Option<GridStatus>,
        /// Whether the requirements are measured; absent if there are none, or if CRM doesn't measure
        /// them: it reads no Prometheus, or the enforcement mode is `off`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub nfr_observed: Option<NfrObserved>,
        /// Recommended values.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub nfr_recommendations: Vec<Recommendation>,
        /// Recommendations that enforcement applied last.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub last_applied_recommendations: Vec<Recommendation>,
        /// Time at which enforcement applied recommendations last.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub last_applied_at: Option<String>,
        /// The last changes that enforcement made.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub nfr_history: Vec<NfrChange>,
        /// Out-of-memory kills of each function that had some in the last 7 days.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub oom_kills: Vec<OomKills>,
    }

    /// Observed status of a function of a unit.
    pub struct FunctionStatus {
        /// Key of the function.
        pub key: String,
        /// Id of the unit.
        pub unit: String,
        /// Name of the cluster.
        pub cluster: String,
        /// Summary state of the function.
        pub condition: Condition,
        /// URL to invoke it: the public one if there is one, else the one within the cluster.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub invocation_url: Option<String>,
        /// URL to invoke it within the cluster.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cluster_url: Option<String>,
        /// Error message if it is not running.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub error_msg: Option<String>,
        /// Whether it can work with the data grid of its class: `Connected` (the grid serves and the
        /// function is ready) or `WaitingForDataGrid` (the grid doesn't serve). Absent if the function
        /// is not ready for another reason, or if the class has no data grid.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub odgm_connection_status: Option<String>,
        /// The latest measurements; absent if CRM doesn't measure the function.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub nfr_compliance: Option<NfrCompliance>,
    }

    /// Observed status of a data grid.
    pub struct GridStatus {
        /// Address of the Service.
        pub service: String,
        /// Whether all nodes are ready.
        pub ready: bool,
        /// Number of nodes.
        pub replicas: i32,
        /// Names of the collections.
        pub collections: Vec<String>,
    }

    /// A ClassRuntime of a cluster.
    pub struct ClassRuntime {
        /// Id of the ClassRuntime.
        pub id: String,
        /// Name of the cluster.
        pub cluster: String,
        /// Name of the package, if it has one.
        pub package_name: String,
        /// Version of the package.
        pub package_version: String,
        /// Environment; empty: no environment.
        pub environment: String,
        /// State: PENDING, ACTIVE, FAILED or DELETED (being deleted, or deleted).
        pub status: String,
        /// Owner: `managed` (a deployment of this package manager), `orphan` (created by a package
        /// manager but unknown to this one) or `unmanaged` (created by another client).
        pub ownership: String,
        /// Key of the deployment it belongs to, if any.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub deployment: Option<String>,
        /// Observed status.
        pub unit: UnitStatus,
        /// Further fields reported by CRM.
        #[cfg_attr(feature = "openapi", schema(value_type = Object))]
        pub details: BTreeMap<String, serde_json::Value>,
    }

    /// A request to adopt an orphan.
    pub struct Adoption {
        /// Key of the adopting deployment, which is created if it doesn't exist.
        pub deployment: String,
    }
}
