//! Facts about all deployments: conditions for metrics, functions for the catalogue, readiness.

use std::collections::BTreeMap;

use oprc_rest::{DeploymentCondition, FunctionStatus};

use super::DeploymentService;

impl DeploymentService {
    /// The status of a package's functions wherever they are deployed, in one version or in any.
    pub fn functions(&self, package: &str, version: Option<&str>) -> Vec<FunctionStatus> {
        let deployments = self.cache.deployments().into_iter().filter(|stored| {
            let plan = &stored.record.plan;
            plan.package == package && version.is_none_or(|version| plan.version == version)
        });
        let status = deployments.filter_map(|it| self.status(&it.record.deployment.key).ok());
        status.flat_map(|it| it.units).flat_map(|unit| unit.functions).collect()
    }

    /// Number of deployments in each condition.
    pub fn count_conditions(&self) -> BTreeMap<DeploymentCondition, usize> {
        let mut counts = BTreeMap::new();
        for stored in self.cache.deployments() {
            if let Ok(status) = self.status(&stored.record.deployment.key) {
                *counts.entry(status.condition).or_default() += 1;
            }
        }
        counts
    }

    /// Why deployments can't be rolled out, if they can't.
    pub fn not_ready(&self) -> Option<String> {
        (!self.lease.is_held()).then(|| "another process owns the store".to_owned())
    }
}
