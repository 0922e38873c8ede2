//! Removing clusters that are no longer configured.

use std::collections::BTreeSet;

use oprc_cp_storage::Transaction;

use super::{Caller, DeploymentService};
use crate::{
    error::Error,
    state::{
        replace,
        schema::{deployment_key, unit_key},
    },
};

impl DeploymentService {
    /// Deletes the unit records of a cluster that is no longer configured, and returns their number.
    /// The units stay on the cluster, and are orphans should it be configured again.
    pub async fn forget_cluster(&self, cluster: &str, caller: &Caller) -> Result<usize, Error> {
        if self.clusters.client(cluster).is_some() {
            let detail = format!("{cluster} is configured: remove it from the configuration first");
            return Err(Error::conflict("CONFIGURED", detail, &[]));
        }
        let units = self.cache.units_on(cluster);
        if units.is_empty() {
            return Err(Error::not_found("cluster", cluster));
        }
        let deployments: BTreeSet<_> =
            units.iter().map(|(_, stored)| stored.record.deployment.clone()).collect();
        for key in deployments {
            let change = self.without_cluster(&key, cluster)?;
            let at = self.cache.store().commit(change).await?;
            self.cache.wait_for(at).await?;
        }
        let (units, by) = (units.len(), caller.name.as_deref().unwrap_or_default());
        tracing::info!(cluster, units, by, "removed the unit records of a cluster");
        Ok(units)
    }

    /// Removes a cluster's units from a deployment, its plan and its former plan.
    fn without_cluster(&self, key: &str, cluster: &str) -> Result<Transaction, Error> {
        let (stored, units) = self.cache.deployment_with_units(key);
        let mut change = Transaction::new().fenced(&self.lease);
        for (unit, stored) in units.iter().filter(|((on, _), _)| on == cluster) {
            change = replace(change, unit_key(unit), Some(stored), None)?;
        }
        let Some(stored) = stored else { return Ok(change) };
        let mut record = stored.record.as_ref().clone();
        record.plan.units.retain(|unit| unit.cluster != cluster);
        if let Some(former) = &mut record.former {
            former.plan.units.retain(|unit| unit.cluster != cluster);
        }
        replace(change, deployment_key(key), Some(&stored), Some(&record))
    }
}
