//! What a cluster has and can do, for planning and for people.

use oprc_grpc::deployment::GetClusterInfoResponse;
use oprc_rest::Health;

use super::Link;
use crate::{
    planner::{Capabilities, Capacity, ClusterFacts},
    stamp,
};

fn count(nodes: i32) -> usize {
    usize::try_from(nodes).unwrap_or_default()
}

/// What a plan goes by. Without an answer ever, only what is configured.
pub(super) fn facts(link: &Link, info: Option<GetClusterInfoResponse>) -> ClusterFacts {
    let configured = ClusterFacts {
        default: link.config.default,
        reachable: link.observed().is_streaming(),
        node_availability: link.config.node_availability,
        environments: link.config.environments.clone(),
        ..ClusterFacts::default()
    };
    let Some(info) = info else { return configured };
    let can = |name: &str| info.capabilities.get(name).copied().unwrap_or_default();
    ClusterFacts {
        nodes_known: info.nodes_known,
        ready_nodes: count(info.ready_nodes),
        capabilities: Some(Capabilities {
            knative: can("knative"),
            odgm: can("odgm"),
            hpa: can("hpa"),
        }),
        capacity: capacity(&info),
        templates: info.templates,
        profile: info.profile,
        ..configured
    }
}

/// CRM tells processor time in thousandths and memory in bytes.
fn capacity(info: &GetClusterInfoResponse) -> Option<Capacity> {
    let amount = |name: &str| info.capacity.get(name);
    Some(Capacity {
        cpu_millis: amount("cpu")?.strip_suffix('m')?.parse().ok()?,
        memory_bytes: amount("memory")?.parse().ok()?,
    })
}

/// What people are told.
pub(super) fn view(link: &Link, units: usize) -> oprc_rest::Cluster {
    let info = link.info();
    let observed = link.observed();
    let (health, message) = match &info {
        _ if !observed.is_streaming() => (Health::Unreachable, observed.trouble().to_owned()),
        _ if !observed.is_known() => (Health::Degraded, observed.trouble().to_owned()),
        Some(info) if info.nodes_known && info.ready_nodes == 0 => {
            (Health::Degraded, "no node is ready".to_owned())
        }
        _ => (Health::Healthy, String::new()),
    };
    let known = info.as_ref().filter(|info| info.nodes_known);
    oprc_rest::Cluster {
        name: link.name().to_owned(),
        url: link.config.url.clone(),
        default: link.config.default,
        health,
        message,
        // A stream that stands is a sign of life, whatever it tells.
        last_seen: if observed.is_streaming() { Some(stamp::now()) } else { observed.last_seen() }
            .map(stamp::text),
        nodes: known.map(|info| count(info.nodes)),
        ready_nodes: known.map(|info| count(info.ready_nodes)),
        availability: known.map(|info| info.availability),
        capabilities: info.as_ref().map(|info| info.capabilities.clone()).unwrap_or_default(),
        capacity: info.as_ref().map(|info| info.capacity.clone()).unwrap_or_default(),
        templates: info.as_ref().map(|info| info.templates.clone()).unwrap_or_default(),
        profile: info.map(|info| info.profile).unwrap_or_default(),
        units,
    }
}
