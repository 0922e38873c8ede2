use std::collections::BTreeMap;

use oprc_unit::{Platform, Template};

use super::{Error, Service};
use crate::{cache::Detected, kinds::AUTOSCALER};

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
    pub profile: String,
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
        let detected = *self.watches.detected().borrow();
        // CRM watches autoscalers anyway: the watch syncs only if autoscaling/v2 is served.
        let autoscaling = self.cache.is_synced(&AUTOSCALER.plural);
        let knative = environment.can_knative();
        let usable = |template: &Template| knative || *template != Template::Knative;
        Ok(ClusterInfo {
            nodes_known,
            nodes: nodes.len(),
            ready_nodes: ready.len(),
            capabilities: capabilities(&environment, detected, autoscaling),
            capacity,
            templates: Template::ALL
                .iter()
                .filter(|it| usable(it))
                .map(|it| it.as_str().to_owned())
                .collect(),
            profile: environment.profile.as_str().to_owned(),
            leading: self.leadership.holds(),
            stale: self.api_health.is_stale(),
        })
    }
}

fn capabilities(
    environment: &Platform,
    detected: Detected,
    autoscaling: bool,
) -> BTreeMap<String, bool> {
    let hpa = environment.features.hpa && autoscaling && detected.metrics;
    let all =
        [("knative", environment.can_knative()), ("odgm", environment.features.odgm), ("hpa", hpa)];
    all.map(|(name, has)| (name.to_owned(), has)).into()
}

#[cfg(test)]
mod tests {
    use oprc_unit::Profile;

    use super::*;

    #[test]
    fn hpa_needs_the_flag_the_api_and_a_metrics_source() {
        for (flag, autoscaling, metrics) in [
            (true, true, true),
            (false, true, true),
            (true, false, true),
            (true, true, false),
            (false, false, false),
        ] {
            let mut environment = Platform::of(Profile::Full);
            environment.features.hpa = flag;
            let detected = Detected { metrics, ..Detected::default() };
            let capabilities = capabilities(&environment, detected, autoscaling);
            assert_eq!(capabilities["hpa"], flag && autoscaling && metrics);
        }
    }
}
