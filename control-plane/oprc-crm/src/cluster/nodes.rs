//! The nodes of the cluster, as far as somebody who plans needs to know them.

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::api::core::v1::Node;
use parking_lot::RwLock;

/// What is known of each node: whether it is ready, and what pods can have of it.
#[derive(Default)]
pub struct Nodes(RwLock<BTreeMap<String, Fact>>);

/// What is known of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// Whether it is ready and takes pods.
    pub ready: bool,
    /// Processor time, in thousandths.
    pub cpu_millis: u64,
    /// Memory, in bytes.
    pub memory_bytes: u64,
}

impl Nodes {
    /// A node is as told.
    pub fn put(&self, node: &Node) {
        let Some(name) = node.metadata.name.clone() else { return };
        let status = node.status.as_ref();
        let ready = status
            .and_then(|it| it.conditions.as_ref())
            .is_some_and(|all| all.iter().any(|it| it.type_ == "Ready" && it.status == "True"));
        let takes = node.spec.as_ref().is_none_or(|it| it.unschedulable != Some(true));
        let amount = |resource: &str| {
            let quantity = status?.allocatable.as_ref()?.get(resource)?;
            kube_quantity::ParsedQuantity::try_from(quantity).ok()?.to_bytes_f64()
        };
        let whole = |value: Option<f64>| {
            // Saturating, and nothing for what is no number.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            value.map_or(0, |value| value.max(0.0) as u64)
        };
        let fact = Fact {
            ready: ready && takes,
            cpu_millis: whole(amount("cpu").map(|cores| cores * 1000.0)),
            memory_bytes: whole(amount("memory")),
        };
        self.0.write().insert(name, fact);
    }

    /// A node is gone.
    pub fn remove(&self, name: &str) {
        self.0.write().remove(name);
    }

    /// Keeps only these nodes.
    pub fn retain(&self, kept: &HashSet<String>) {
        let mut all = self.0.write();
        all.retain(|name, _| kept.contains(name));
    }

    /// All of them.
    pub fn all(&self) -> Vec<Fact> {
        self.0.read().values().cloned().collect()
    }
}
