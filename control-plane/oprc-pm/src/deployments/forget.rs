//! Clusters that won't come back.

use std::collections::BTreeSet;

use oprc_cp_storage::{Check, Transaction};

use super::{Caller, Deployments};
use crate::{error::Error, records};

impl Deployments {
    /// Forgets the units of a cluster that isn't configured any more. Whatever it has stays there
    /// as it is, and is found as orphans should it ever be configured again. Tells how many they
    /// were.
    pub async fn forget_cluster(&self, cluster: &str, caller: &Caller) -> Result<usize, Error> {
        if self.clusters.link(cluster).is_some() {
            return Err(Error::Conflict {
                reason: "CONFIGURED",
                detail: format!("{cluster} is configured: take it out of the configuration first"),
                blockers: Vec::new(),
            });
        }
        let units = self.book.units_on(cluster);
        if units.is_empty() {
            return Err(Error::not_found("cluster", cluster));
        }
        let deployments: BTreeSet<_> =
            units.iter().map(|(_, kept)| kept.record.deployment.clone()).collect();
        for key in deployments {
            let (kept, units) = self.book.whole(&key);
            let mut change = Transaction::new().fenced(&self.ownership);
            for ((on, id), kept) in units.iter().filter(|((on, _), _)| on == cluster) {
                let name = records::unit(on, id);
                change = change.check(name.clone(), Check::Version(kept.version)).delete(name);
            }
            if let Some(kept) = kept {
                // Nothing is to be made there, waited for or gone back to any more.
                let mut record = kept.record.as_ref().clone();
                record.plan.units.retain(|unit| unit.cluster != cluster);
                if let Some(former) = &mut record.former {
                    former.plan.units.retain(|unit| unit.cluster != cluster);
                }
                let name = records::deployment(&key);
                change = change
                    .check(name.clone(), Check::Version(kept.version))
                    .put(name, records::write(&record)?);
            }
            let at = self.store.commit(change).await?;
            self.book.reach(at).await?;
        }
        let (units, by) = (units.len(), caller.name.as_deref().unwrap_or_default());
        tracing::info!(cluster, units, by, "a cluster was forgotten");
        Ok(units)
    }
}
