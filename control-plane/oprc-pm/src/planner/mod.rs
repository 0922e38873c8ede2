//! What is to run where, and why: a function of the deployment, its package and what is known of
//! clusters, with no IO and no clock, so that the same question has the same answer.

mod facts;
mod id;

use std::collections::BTreeMap;

use oprc_models::{Faults, OClassDeployment, ResolvedPackage};
use oprc_rest::Plan;

pub use self::{
    facts::{Capabilities, Capacity, ClusterFacts},
    id::{UnitId, parse_unit_id, unit_id},
};

/// What is to be planned.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The deployment.
    pub deployment: &'a OClassDeployment,
    /// The version of its package that was chosen.
    pub package: &'a ResolvedPackage,
    /// The clusters that are configured.
    pub clusters: &'a BTreeMap<String, ClusterFacts>,
    /// What holds for deployments that don't say.
    pub defaults: &'a Defaults,
    /// The plan that is driven now, where there is one: what was put somewhere because nobody said
    /// where, stays there.
    pub former: Option<&'a Plan>,
}

/// What holds for deployments that don't say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    /// The environment; none for each cluster's own default.
    pub environment: Option<String>,
}

/// Plans a deployment, or tells everything that stands against it.
pub fn plan(_request: &Request<'_>) -> Result<Plan, Faults> {
    Err(Faults::default())
}
