use std::collections::BTreeMap;

use k8s_openapi::api::core::v1;
use parking_lot::RwLock;
use tokio::sync::watch;

use super::key::{Known, key};

/// The cluster's nodes, as far as the planner needs them.
#[derive(Default)]
pub struct Nodes {
    all: RwLock<BTreeMap<String, Node>>,
    changes: watch::Sender<()>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Ready and schedulable.
    pub ready: bool,
    /// Allocatable CPU.
    pub cpu_millis: u64,
    /// Allocatable memory.
    pub memory_bytes: u64,
}

impl Nodes {
    pub fn put(&self, node: &v1::Node) {
        let Some(name) = node.metadata.name.clone() else { return };
        let node = project(node);
        let before = self.all.write().insert(name, node.clone());
        self.notify_if(before.as_ref() != Some(&node));
    }

    pub fn remove(&self, name: &str) {
        let removed = self.all.write().remove(name);
        self.notify_if(removed.is_some());
    }

    pub fn known(&self) -> Known {
        self.all.read().keys().map(|name| (key("", name), String::new())).collect()
    }

    pub fn all(&self) -> Vec<Node> {
        self.all.read().values().cloned().collect()
    }

    /// Notifies of changes of what is kept here, not of every heartbeat of a node.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    fn notify_if(&self, changed: bool) {
        if changed {
            self.changes.send_replace(());
        }
    }
}

fn project(node: &v1::Node) -> Node {
    let status = node.status.as_ref();
    let ready = status
        .and_then(|it| it.conditions.as_ref())
        .is_some_and(|all| all.iter().any(|it| it.type_ == "Ready" && it.status == "True"));
    let schedulable = node.spec.as_ref().is_none_or(|it| it.unschedulable != Some(true));
    let allocatable = |resource: &str| {
        let quantity = status?.allocatable.as_ref()?.get(resource)?;
        kube_quantity::ParsedQuantity::try_from(quantity).ok()?.to_bytes_f64()
    };
    let whole = |value: Option<f64>| {
        // Saturating, and 0 for NaN.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        value.map_or(0, |value| value.max(0.0) as u64)
    };
    Node {
        ready: ready && schedulable,
        cpu_millis: whole(allocatable("cpu").map(|cores| cores * 1000.0)),
        memory_bytes: whole(allocatable("memory")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(cpu: &str, heartbeat: &str) -> v1::Node {
        serde_json::from_value(json!({
            "metadata": {"name": "one"},
            "status": {
                "allocatable": {"cpu": cpu, "memory": "1Gi"},
                "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}],
            },
        }))
        .unwrap()
    }

    #[test]
    fn notifies_of_changed_capacity_and_not_of_heartbeats() {
        let nodes = Nodes::default();
        let mut changes = nodes.changes();
        let mut changed = || {
            let changed = changes.has_changed().unwrap();
            changes.mark_unchanged();
            changed
        };
        changed();
        nodes.put(&node("2", "2026-01-01T00:00:00Z"));
        assert!(changed(), "a node was added");
        nodes.put(&node("2", "2026-01-01T00:05:00Z"));
        assert!(!changed(), "only its heartbeat differs");
        nodes.put(&node("1500m", "2026-01-01T00:05:00Z"));
        assert!(changed(), "its capacity differs");
        assert_eq!(nodes.all(), [Node { ready: true, cpu_millis: 1500, memory_bytes: 1 << 30 }]);
        assert!(!changed());
        nodes.remove("one");
        assert!(changed(), "it was deleted");
        nodes.remove("one");
        assert!(!changed());
    }
}
