//! State of clusters as an input of the planner.

use std::borrow::Cow;

use oprc_unit::{Capacity, Platform, Profile};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterFacts {
    /// Whether deployments that name no cluster may use it.
    pub default: bool,
    /// Whether it is connected. The plan for a disconnected cluster uses the facts that it reported
    /// last, and is applied when it reconnects.
    pub reachable: bool,
    /// Whether its CRM can see nodes.
    pub nodes_known: bool,
    pub ready_nodes: usize,
    /// The configured availability of each of its nodes.
    pub node_availability: Option<f64>,
    /// `None` until its CRM has reported it.
    pub platform: Option<Platform>,
    /// Whether its CRM reads Prometheus; `None` if it doesn't report that.
    pub measures_requirements: Option<bool>,
    /// Whether its CRM applies recommendations in mode `enforce`; `None` if it doesn't report that.
    pub enforces_requirements: Option<bool>,
    /// Allocatable on ready nodes; `None` if unknown.
    pub capacity: Option<Capacity>,
    /// Requested by other deployments.
    pub requested: Capacity,
    /// The configured environments; empty if any name is allowed.
    pub environments: Vec<String>,
}

impl ClusterFacts {
    /// Capacity that other deployments don't request; zero if capacity is unknown.
    pub(super) fn free(&self) -> Capacity {
        let all = self.capacity.unwrap_or_default();
        Capacity {
            cpu_millis: all.cpu_millis.saturating_sub(self.requested.cpu_millis),
            memory_bytes: all.memory_bytes.saturating_sub(self.requested.memory_bytes),
        }
    }

    /// The platform to plan with. For a cluster that never reported one, it is that of profile `dev`
    /// with every feature enabled.
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
