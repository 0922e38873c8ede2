//! Orphans: units on a cluster with an id of this control plane and without a record. After the loss
//! of a store all units are.

use std::time::Duration;

use oprc_cp_storage::Transaction;
use oprc_rest::ClassRuntime;
use tokio::time::timeout;

use super::{Caller, DeploymentService, RuntimeFilter};
use crate::{
    error::Error,
    id,
    paging::MAX_PAGE_SIZE,
    planner::{UnitId, parse_unit_id},
    rollout::{Observation, UnitKey, UnitRecord},
    state::{replace, schema::unit_key},
};

/// How long a deletion waits for the cluster to reject it.
const REJECTION_TIMEOUT: Duration = Duration::from_secs(10);

impl DeploymentService {
    pub fn orphans(&self) -> Vec<ClassRuntime> {
        let filter =
            RuntimeFilter { ownership: Some("orphan".to_owned()), ..RuntimeFilter::default() };
        self.class_runtimes(&filter, None, MAX_PAGE_SIZE).items
    }

    /// The parts of an orphan's id, and its namespace.
    pub(super) fn orphan<'a>(
        &self,
        cluster: &str,
        id: &'a str,
    ) -> Result<(UnitId<'a>, String), Error> {
        let cache = self.client(cluster)?.class_cache();
        let class = cache.class(id, "").ok_or_else(|| Error::not_found("class runtime", id))?;
        let document = self.class_document(cluster, class, cache.contact());
        let stored = self.cache.unit(&(cluster.to_owned(), id.to_owned()));
        if class.deleting || stored.is_some_and(|stored| !stored.record.desired) {
            let detail = format!("{id} on {cluster} is already being deleted");
            return Err(Error::conflict("DELETING", detail, &[]));
        }
        if document.ownership == "orphan" {
            let parts = parse_unit_id(id).ok_or_else(|| Error::not_found("orphan", id))?;
            return Ok((parts, document.unit.namespace));
        }
        let detail = format!("{id} on {cluster} is {}, no orphan", document.ownership);
        Err(Error::conflict("NO_ORPHAN", detail, document.deployment.as_deref().as_slice()))
    }

    /// Deletes an orphan from its cluster. The deletion is stored like that of any unit: an
    /// unreachable cluster executes it when it returns, and a deployment may still take the unit
    /// over.
    pub async fn delete_orphan(
        &self,
        cluster: &str,
        id: &str,
        caller: &Caller,
    ) -> Result<(), Error> {
        let (parts, namespace) = self.orphan(cluster, id)?;
        // Of no deployment: none waits for it.
        let deletion = UnitRecord {
            revision: id::new_id(),
            class: parts.class.to_owned(),
            environment: parts.environment.to_owned(),
            namespace,
            desired: false,
            correlation_id: caller.correlation_id.clone(),
            ..UnitRecord::default()
        };
        let key = (cluster.to_owned(), id.to_owned());
        let change = replace(Transaction::new(), unit_key(&key), None, Some(&deletion))?;
        if !self.cache.commit(change.fenced(&self.lease)).await? {
            let detail = format!("{id} on {cluster} is no orphan any more");
            return Err(Error::conflict("NO_ORPHAN", detail, &[]));
        }
        match timeout(REJECTION_TIMEOUT, self.deletion_rejected(&key, &deletion)).await {
            Ok(Some(why)) => self.restore_orphan(&key, &deletion, &why).await,
            // It is being deleted, or will be when the cluster answers.
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Waits until a cluster deletes a unit, or returns why it rejects that.
    async fn deletion_rejected(&self, key: &UnitKey, deletion: &UnitRecord) -> Option<String> {
        let client = self.clusters.client(&key.0)?;
        let (mut stored, mut observed) = (self.cache.changes(), client.changes());
        let mut errors = self.call_backoff.changes();
        loop {
            if self.cache.unit(key)?.record.revision != deletion.revision {
                return None;
            }
            match client.class_cache().observe(&key.1, deletion.object_namespace()) {
                Observation::Present(unit) if !unit.deleting => {}
                _ => return None,
            }
            if let Some(why) = self.call_backoff.rejection(key, deletion) {
                return Some(why);
            }
            tokio::select! {
                _ = stored.changed() => {}
                _ = observed.changed() => {}
                _ = errors.changed() => {}
            }
        }
    }

    /// Deletes the record of a rejected deletion, which makes the unit an orphan again.
    async fn restore_orphan(
        &self,
        key: &UnitKey,
        deletion: &UnitRecord,
        why: &str,
    ) -> Result<(), Error> {
        let stored = self.cache.unit(key);
        let stored = stored.filter(|stored| stored.record.revision == deletion.revision);
        // A deployment has taken the unit over.
        let Some(stored) = stored else { return Ok(()) };
        let change = replace(Transaction::new(), unit_key(key), Some(&stored), None)?;
        if !self.cache.commit(change.fenced(&self.lease)).await? {
            return Ok(());
        }
        let (cluster, id) = key;
        let detail = format!("{cluster} rejects the deletion of {id}: {why}");
        Err(Error::conflict("REJECTED", detail, &[]))
    }
}
