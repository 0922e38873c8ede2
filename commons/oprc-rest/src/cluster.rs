//! Clusters.

use std::collections::BTreeMap;

use crate::{document, words};

words! {
    /// Whether a cluster can be asked.
    pub enum Health {
        /// Its CRM answers and is ready.
        Healthy,
        /// It answers, and something is wrong.
        Degraded,
        /// It doesn't answer.
        #[default]
        Unreachable,
    }
}

document! {
    /// A cluster that is configured.
    pub struct Cluster {
        /// Its name.
        pub name: String,
        /// Where its CRM is asked.
        pub url: String,
        /// Whether deployments that name no cluster may go there.
        pub default: bool,
        /// Whether it can be asked.
        pub health: Health,
        /// What is wrong, where something is.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub message: String,
        /// When it was heard of last.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub last_seen: Option<String>,
        /// How many nodes it has; left out where its CRM can't see nodes.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub nodes: Option<usize>,
        /// How many of them are ready.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub ready_nodes: Option<usize>,
        /// The part of its nodes that is ready.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub availability: Option<f64>,
        /// What it can do: knative, odgm, hpa.
        pub capabilities: BTreeMap<String, bool>,
        /// What pods can have of its nodes.
        pub capacity: BTreeMap<String, String>,
        /// The templates that it has.
        pub templates: Vec<String>,
        /// The profile of its CRM.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub profile: String,
        /// How many units are driven there.
        pub units: usize,
    }
}
