//! Plans: which units run on which clusters, and why.

use crate::document;

document! {
    /// The plan of a deployment. It is deterministic: the same package, deployment and clusters give
    /// the same plan.
    pub struct Plan {
        /// Key of the deployment.
        pub deployment: String,
        /// Name of the package.
        pub package: String,
        /// Selected version of the package.
        pub version: String,
        /// Units, ordered by cluster, environment and class.
        pub units: Vec<UnitPlan>,
        /// Why these clusters and this version were selected.
        pub reasons: Vec<Reason>,
        /// Warnings, such as a cluster whose capacity is exceeded.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub warnings: Vec<String>,
    }

    /// The plan of a unit: one class in one environment of one cluster.
    pub struct UnitPlan {
        /// Id, derived from deployment, class, environment and cluster.
        pub id: String,
        /// Name of the cluster.
        pub cluster: String,
        /// Environment; empty for the default of the cluster.
        pub environment: String,
        /// Namespace; empty for the default of the cluster.
        pub namespace: String,
        /// Key of the class.
        pub class: String,
        /// Spec sent to the CRM of the cluster (`deployment.unit.ClassSpec`).
        #[cfg_attr(feature = "openapi", schema(value_type = Object))]
        pub spec: serde_json::Value,
        /// Why each value was chosen.
        pub reasons: Vec<Reason>,
    }

    /// Why a value was chosen.
    pub struct Reason {
        /// Field of the unit, or `clusters` or `version`.
        pub field: String,
        /// Chosen value.
        pub value: String,
        /// Explanation, with the calculation if there is one.
        pub because: String,
    }
}
