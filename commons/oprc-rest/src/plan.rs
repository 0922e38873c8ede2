//! Plans: what would run where, and why.

use crate::document;

document! {
    /// What a deployment comes to: the same for the same package, deployment and clusters.
    pub struct Plan {
        /// The deployment.
        pub deployment: String,
        /// The package.
        pub package: String,
        /// The version that was chosen.
        pub version: String,
        /// The units, by cluster, environment and class.
        pub units: Vec<UnitPlan>,
        /// Why the clusters and the version were chosen.
        pub reasons: Vec<Reason>,
        /// What may not go as wished, such as a cluster whose capacity is exceeded.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub warnings: Vec<String>,
    }

    /// One class in one environment of one cluster.
    pub struct UnitPlan {
        /// What it is known by: a function of deployment, class, environment and cluster.
        pub id: String,
        /// The cluster.
        pub cluster: String,
        /// The environment; empty for the cluster's own default.
        pub environment: String,
        /// The namespace; empty for the cluster's own default.
        pub namespace: String,
        /// The class.
        pub class: String,
        /// What the cluster is sent (`deployment.unit.ClassSpec`).
        #[cfg_attr(feature = "openapi", schema(value_type = Object))]
        pub spec: serde_json::Value,
        /// How it came to each number.
        pub reasons: Vec<Reason>,
    }

    /// How something was decided.
    pub struct Reason {
        /// What: a field of the unit, or `clusters`, `version`.
        pub field: String,
        /// What was decided.
        pub value: String,
        /// Why, with the arithmetic where there is any.
        pub because: String,
    }
}
