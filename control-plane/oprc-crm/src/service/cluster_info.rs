//! What the cluster has and can do.

use oprc_unit::Template;
use std::collections::BTreeMap;

use super::{Error, Service};

/// What the cluster has and can do.
#[derive(Clone, Debug, Default)]
pub struct ClusterInfo {
    /// Whether nodes can be seen at all.
    pub nodes_known: bool,
    /// How many there are.
    pub nodes: usize,
    /// How many are ready and take pods.
    pub ready_nodes: usize,
    /// What is there.
    pub capabilities: BTreeMap<String, bool>,
    /// What pods can have of the nodes that are ready.
    pub capacity: BTreeMap<String, String>,
    /// Templates that can be chosen.
    pub templates: Vec<String>,
    /// The profile.
    pub profile: String,
    /// Whether this process leads.
    pub leading: bool,
    /// Whether it may be out of date.
    pub stale: bool,
}

impl Service {
    /// What the cluster has and can do.
    pub fn cluster_info(&self) -> Result<ClusterInfo, Error> {
        self.ready()?;
        let environment = (self.environment)();
        let nodes = self.nodes.all();
        let ready: Vec<_> = nodes.iter().filter(|node| node.ready).collect();
        let nodes_known = self.only_namespace.is_none();
        let mut capacity = BTreeMap::new();
        if nodes_known {
            let cpu: u64 = ready.iter().map(|node| node.cpu_millis).sum();
            let memory: u64 = ready.iter().map(|node| node.memory_bytes).sum();
            capacity.insert("cpu".to_owned(), format!("{cpu}m"));
            capacity.insert("memory".to_owned(), memory.to_string());
        }
        let knative = environment.can_knative();
        let capabilities = [
            ("knative", knative),
            ("odgm", environment.features.odgm),
            ("hpa", environment.features.hpa),
        ];
        let usable = |template: &Template| knative || *template != Template::Knative;
        Ok(ClusterInfo {
            nodes_known,
            nodes: nodes.len(),
            ready_nodes: ready.len(),
            capabilities: capabilities.map(|(name, has)| (name.to_owned(), has)).into(),
            capacity,
            templates: Template::ALL
                .iter()
                .filter(|it| usable(it))
                .map(|it| it.as_str().to_owned())
                .collect(),
            profile: environment.profile.as_str().to_owned(),
            leading: self.leadership.holds(),
            stale: self.contact.is_lost(),
        })
    }
}
