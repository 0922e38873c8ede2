//! Plans: which units run on which clusters, and why.

use oprc_unit::{Capacity, TemplateScore, UnitSpec};

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
        /// Environment; empty: no environment.
        pub environment: String,
        /// Namespace; empty for the default of the cluster.
        pub namespace: String,
        /// Key of the class.
        pub class: String,
        /// The template that the cluster's CRM selects; absent if PM has never connected to the
        /// cluster.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub template: Option<String>,
        /// Why that template is selected.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub template_basis: String,
        /// Each template with its score from 0 to 10, its criteria (the score is their mean), and why
        /// it is rejected.
        #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub scores: Vec<TemplateScore>,
        /// Sum of the CPU and memory requests at minimum scale.
        #[cfg_attr(feature = "openapi", schema(value_type = Object))]
        pub requested: Capacity,
        /// The spec of the ClassRuntime.
        #[cfg_attr(feature = "openapi", schema(value_type = Object))]
        pub spec: UnitSpec,
        /// Why each value was chosen.
        pub reasons: Vec<Reason>,
    }

    /// Why a value was chosen.
    pub struct Reason {
        /// Field of the unit, or `clusters`, `version` or `requests`.
        pub field: String,
        /// Chosen value.
        pub value: String,
        /// Explanation, with the calculation if there is one.
        pub because: String,
    }
}
