//! What is known of clusters when a plan is made.

use std::borrow::Cow;

use oprc_unit::{Capacity, Platform, Profile};

/// What is known of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterFacts {
    /// Whether deployments that name no cluster may use it.
    pub default: bool,
    /// Whether it is connected. A cluster that isn't is planned for with the facts it reported
    /// last, and catches up when it returns.
    pub reachable: bool,
    /// Whether its CRM can see nodes.
    pub nodes_known: bool,
    pub ready_nodes: usize,
    /// The availability of each of its nodes, where that is configured.
    pub node_availability: Option<f64>,
    /// The settings and capabilities of its CRM; none where it never reported them.
    pub platform: Option<Platform>,
    /// Allocatable on ready nodes; none where that isn't known.
    pub capacity: Option<Capacity>,
    /// Requested by other deployments.
    pub requested: Capacity,
    /// The environments that it is configured to have; empty where any name is allowed.
    pub environments: Vec<String>,
}

impl ClusterFacts {
    /// Capacity that other deployments don't request; zero where capacity isn't known.
    pub(super) fn free(&self) -> Capacity {
        let all = self.capacity.unwrap_or_default();
        Capacity {
            cpu_millis: all.cpu_millis.saturating_sub(self.requested.cpu_millis),
            memory_bytes: all.memory_bytes.saturating_sub(self.requested.memory_bytes),
        }
    }

    /// The platform to plan with. Of a cluster that never reported, the defaults of profile `dev`
    /// with every feature switched on are assumed.
    pub(super) fn platform(&self) -> Cow<'_, Platform> {
        match &self.platform {
            Some(platform) => Cow::Borrowed(platform),
            None => {
                let mut platform = Platform::of(Profile::Dev);
                platform.features.odgm = true;
                platform.features.hpa = true;
                platform.autoscaling = true;
                Cow::Owned(platform)
            }
        }
    }

    /// Whether it reported that it has no data grid.
    pub(super) fn lacks_grid(&self) -> bool {
        self.platform.as_ref().is_some_and(|platform| !platform.features.odgm)
    }

    pub(super) fn has_environment(&self, environment: &str) -> bool {
        let named = |it: &String| it == environment;
        environment.is_empty()
            || self.environments.is_empty()
            || self.environments.iter().any(named)
    }
}
