//! Clusters that won't come back.

use oprc_cp_storage::{Check, Transaction};

use super::{Caller, Deployments};
use crate::{error::Error, records};

/// So many units are forgotten at once: each takes two operations of a transaction.
const TOGETHER: usize = 40;

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
        for some in units.chunks(TOGETHER) {
            let mut change = Transaction::new().fenced(&self.ownership);
            for ((cluster, id), kept) in some {
                let name = records::unit(cluster, id);
                change = change.check(name.clone(), Check::Version(kept.version)).delete(name);
            }
            let at = self.store.commit(change).await?;
            self.book.reach(at).await?;
        }
        let (units, by) = (units.len(), caller.name.as_deref().unwrap_or_default());
        tracing::info!(cluster, units, by, "a cluster was forgotten");
        Ok(units)
    }
}
