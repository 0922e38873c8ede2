//! Units as clusters tell of them.

use std::collections::BTreeMap;

use crate::{document, words};

words! {
    /// How a unit or a function is (000, by the table of states).
    pub enum Condition {
        /// Nothing has begun.
        #[default]
        Pending,
        /// It is being brought about.
        Deploying,
        /// It runs.
        Running,
        /// It doesn't.
        Down,
        /// It is gone.
        Deleted,
    }

    /// What the package manager knows of a unit's cluster.
    pub enum Contact {
        /// The cluster tells.
        #[default]
        Fresh,
        /// What is told is out of date: the cluster, or its API server, is away.
        Stale,
        /// The cluster isn't in the configuration any more.
        Unconfigured,
        /// Nothing was ever heard of it.
        Unknown,
    }
}

document! {
    /// How a unit is.
    pub struct UnitStatus {
        /// The unit.
        pub id: String,
        /// The cluster.
        pub cluster: String,
        /// The environment; empty for the cluster's own default.
        pub environment: String,
        /// The namespace that it is in.
        pub namespace: String,
        /// The class.
        pub class: String,
        /// In a word.
        pub condition: Condition,
        /// The phase that CRM tells: Pending, Applying, Progressing, Available, Degraded, Deleting.
        pub phase: String,
        /// Why, in a word, where it isn't well.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub reason: String,
        /// Why, in a sentence.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub message: String,
        /// The template that it got.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub template: String,
        /// Whether what the cluster has is what was planned.
        pub current: bool,
        /// Whether that can be believed.
        pub contact: Contact,
        /// Since when it is so.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub since: String,
        /// Its functions.
        pub functions: Vec<FunctionStatus>,
        /// Its data grid, where it has one.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub odgm: Option<GridStatus>,
    }

    /// How a function of a unit is.
    pub struct FunctionStatus {
        /// The function.
        pub key: String,
        /// The unit.
        pub unit: String,
        /// The cluster.
        pub cluster: String,
        /// In a word.
        pub condition: Condition,
        /// Where it is called: by everybody, or else within its cluster.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub invocation_url: Option<String>,
        /// Where it is called within its cluster.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cluster_url: Option<String>,
        /// What is wrong with it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub error_msg: Option<String>,
    }

    /// How a data grid is.
    pub struct GridStatus {
        /// Where it is called.
        pub service: String,
        /// Whether it answers.
        pub ready: bool,
        /// How many nodes it has.
        pub replicas: i32,
        /// Its collections.
        pub collections: Vec<String>,
    }

    /// A ClassRuntime of a cluster: the `DeploymentRecord` of the specification.
    pub struct ClassRuntime {
        /// Its id.
        pub id: String,
        /// The cluster.
        pub cluster: String,
        /// The package, where it has one.
        pub package_name: String,
        /// Its version.
        pub package_version: String,
        /// The environment.
        pub environment: String,
        /// PENDING, ACTIVE, FAILED or DELETED.
        pub status: String,
        /// Whether the package manager drives it: `driven`, `orphan` (it carries a package
        /// manager's mark, and this one doesn't know it) or `foreign` (made by somebody else).
        pub ownership: String,
        /// The deployment that it belongs to, where there is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub deployment: Option<String>,
        /// How it is.
        pub unit: UnitStatus,
        /// What CRM tells of it, by its own names: plan, runtime state, stability.
        #[cfg_attr(feature = "openapi", schema(value_type = Object))]
        pub details: BTreeMap<String, serde_json::Value>,
    }

    /// What is to become of an orphan.
    pub struct Adoption {
        /// The deployment that is to have it; made if there is none.
        pub deployment: String,
    }
}
