//! What is known of clusters when a plan is made.

/// What is known of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterFacts {
    /// Whether deployments that name no cluster may go there.
    pub default: bool,
    /// Whether it answers now. One that doesn't is planned for all the same, as it was when it was
    /// heard of last, and catches up when it returns.
    pub reachable: bool,
    /// Whether its CRM can see nodes.
    pub nodes_known: bool,
    /// How many nodes are ready, where they are known.
    pub ready_nodes: usize,
    /// The part of the time that each of its nodes is available, where that is configured.
    pub node_availability: Option<f64>,
    /// What it can do; none where it was never heard of.
    pub capabilities: Option<Capabilities>,
    /// What pods can have of its ready nodes; none where that isn't known.
    pub capacity: Option<Capacity>,
    /// What other deployments ask of it.
    pub taken: Capacity,
    /// The templates that it has; empty where it was never heard of.
    pub templates: Vec<String>,
    /// The profile of its CRM; empty where it was never heard of.
    pub profile: String,
    /// The environments that it is configured to have; empty where any will do.
    pub environments: Vec<String>,
}

/// What a cluster can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether it has Knative.
    pub knative: bool,
    /// Whether it may have data grids.
    pub odgm: bool,
    /// Whether it has autoscalers.
    pub hpa: bool,
}

/// What pods can have, or ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Processor time, in thousandths of a processor.
    pub cpu_millis: u64,
    /// Memory.
    pub memory_bytes: u64,
}

impl ClusterFacts {
    /// What others leave of it; nothing where it isn't known what it has.
    pub(super) fn room(&self) -> Capacity {
        let all = self.capacity.unwrap_or_default();
        Capacity {
            cpu_millis: all.cpu_millis.saturating_sub(self.taken.cpu_millis),
            memory_bytes: all.memory_bytes.saturating_sub(self.taken.memory_bytes),
        }
    }

    /// Whether it may have that environment.
    pub(super) fn has_environment(&self, environment: &str) -> bool {
        let named = |it: &String| it == environment;
        environment.is_empty()
            || self.environments.is_empty()
            || self.environments.iter().any(named)
    }
}
