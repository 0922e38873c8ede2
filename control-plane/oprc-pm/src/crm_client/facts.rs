//! Nodes, capacity and capabilities of a cluster, for planning and for the API.

use oprc_grpc::{deployment::GetClusterInfoResponse, unit::platform_from_wire};
use oprc_rest::Health;
use oprc_unit::Capacity;

use super::{ClassCache, CrmClient};
use crate::{clock, planner::ClusterFacts};

fn count(nodes: i32) -> usize {
    usize::try_from(nodes).unwrap_or_default()
}

/// A cluster that never connected has only its configured facts.
pub(super) fn facts(client: &CrmClient) -> ClusterFacts {
    let cache = client.class_cache();
    let configured = ClusterFacts {
        default: client.config.default,
        reachable: cache.connected,
        node_availability: client.config.node_availability,
        environments: client.config.environments.clone(),
        ..ClusterFacts::default()
    };
    let Some(info) = &cache.info else { return configured };
    ClusterFacts {
        nodes_known: info.nodes_known,
        ready_nodes: count(info.ready_nodes),
        platform: info.platform.as_ref().and_then(platform_from_wire),
        measures_requirements: info.capabilities.get("prometheus").copied(),
        enforces_requirements: info.capabilities.get("nfr_enforcement").copied(),
        capacity: capacity(info),
        ..configured
    }
}

/// CRM reports CPU in millicores and memory in bytes.
fn capacity(info: &GetClusterInfoResponse) -> Option<Capacity> {
    let quantity = |name: &str| info.capacity.get(name);
    Some(Capacity {
        cpu_millis: quantity("cpu")?.strip_suffix('m')?.parse().ok()?,
        memory_bytes: quantity("memory")?.parse().ok()?,
    })
}

/// The health of a cluster, and the reason unless it is healthy.
pub(super) fn health(cache: &ClassCache) -> (Health, String) {
    match &cache.info {
        _ if !cache.connected => (Health::Unreachable, cache.problem.clone()),
        _ if !cache.is_fresh() => (Health::Degraded, cache.problem.clone()),
        Some(info) if info.nodes_known && info.ready_nodes == 0 => {
            (Health::Degraded, "no node is ready".to_owned())
        }
        _ => (Health::Healthy, String::new()),
    }
}

pub(super) fn view(client: &CrmClient, units: usize) -> oprc_rest::Cluster {
    let cache = client.class_cache();
    let (health, message) = health(&cache);
    // An open stream is a sign of life even without events: keep-alive would have closed it.
    let last_seen = if cache.connected { Some(clock::now()) } else { cache.last_seen };
    let info = cache.info.as_deref().cloned().unwrap_or_default();
    let known = info.nodes_known;
    oprc_rest::Cluster {
        name: client.name().to_owned(),
        url: client.config.url.clone(),
        default: client.config.default,
        health,
        message,
        last_seen: last_seen.map(|at| at.to_string()),
        nodes: known.then(|| count(info.nodes)),
        ready_nodes: known.then(|| count(info.ready_nodes)),
        availability: known.then_some(info.availability),
        capabilities: info.capabilities,
        capacity: info.capacity,
        templates: info.templates,
        profile: info.profile,
        units,
    }
}
