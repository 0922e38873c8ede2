use std::collections::BTreeMap;

use oprc_unit::{ADDONS, Platform, Template};

use super::{Error, Service};

/// What the cluster has and supports.
#[derive(Clone, Debug, Default)]
pub struct ClusterInfo {
    /// False if CRM may not read nodes.
    pub nodes_known: bool,
    pub nodes: usize,
    /// Ready and schedulable.
    pub ready_nodes: usize,
    pub capabilities: BTreeMap<String, bool>,
    /// Allocatable resources of the ready nodes.
    pub capacity: BTreeMap<String, String>,
    /// Templates that can be selected.
    pub templates: Vec<String>,
    /// The settings that units are admitted and reconciled with.
    pub platform: Option<Platform>,
    /// Whether this process is the leader.
    pub leading: bool,
    /// Whether the cache may be out of date.
    pub stale: bool,
}

impl Service {
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
        let addons = ADDONS.map(|addon| (addon.name, addon.is_enabled(&environment.features)));
        let capabilities = [("knative", knative), ("hpa", environment.can_autoscale())];
        let usable = |template: &Template| knative || *template != Template::Knative;
        Ok(ClusterInfo {
            nodes_known,
            nodes: nodes.len(),
            ready_nodes: ready.len(),
            capabilities: capabilities
                .into_iter()
                .chain(addons)
                .map(|(name, has)| (name.to_owned(), has))
                .collect(),
            capacity,
            templates: Template::ALL
                .iter()
                .filter(|it| usable(it))
                .map(|it| it.as_str().to_owned())
                .collect(),
            leading: self.leadership.holds(),
            platform: Some(environment),
            stale: self.api_health.is_stale(),
        })
    }
}
