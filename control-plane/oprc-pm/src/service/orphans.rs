//! Orphans: units on a cluster with an id of this control plane and without a record. After the loss
//! of a store all units are.

use std::time::Duration;

use oprc_cp_storage::{Check, Transaction};
use oprc_rest::ClassRuntime;
use oprc_unit::Capacity;
use tokio::time::timeout;

use super::{Caller, DeploymentService, RuntimeFilter, conflict};
use crate::{
    error::Error,
    id,
    paging::MAX_PAGE_SIZE,
    planner::parse_unit_id,
    rollout::{Observation, UnitKey, UnitRecord},
    state::schema::{encode, unit_key},
};

/// How long a deletion waits for the cluster to reject it.
const REJECTION_TIMEOUT: Duration = Duration::from_secs(10);

impl DeploymentService {
    pub fn orphans(&self) -> Vec<ClassRuntime> {
        let filter =
            RuntimeFilter { ownership: Some("orphan".to_owned()), ..RuntimeFilter::default() };
        self.class_runtimes(&filter, None, MAX_PAGE_SIZE).items
    }

    pub(super) fn orphan(&self, cluster: &str, id: &str) -> Result<ClassRuntime, Error> {
        let client = self.clusters.client(cluster);
        let client = client.ok_or_else(|| Error::not_found("cluster", cluster))?;
        let cache = client.class_cache();
        let class = cache.class(id, "").ok_or_else(|| Error::not_found("class runtime", id))?;
        let document = self.class_document(cluster, class, cache.contact());
        let stored = self.cache.unit(&(cluster.to_owned(), id.to_owned()));
        if class.deleting || stored.is_some_and(|stored| stored.record.spec.is_none()) {
            return Err(conflict(
                "DELETING",
                format!("{id} on {cluster} is already being deleted"),
            ));
        }
        if document.ownership == "orphan" {
            return Ok(document);
        }
        Err(Error::Conflict {
            reason: "NO_ORPHAN",
            detail: format!("{id} on {cluster} is {}, no orphan", document.ownership),
            blockers: document.deployment.into_iter().collect(),
        })
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
        let orphan = self.orphan(cluster, id)?;
        let parts = parse_unit_id(id).ok_or_else(|| Error::not_found("orphan", id))?;
        let deletion = UnitRecord {
            // Of no deployment: none waits for it.
            deployment: String::new(),
            revision: id::new_id(),
            class: parts.class.to_owned(),
            environment: parts.environment.to_owned(),
            namespace: orphan.unit.namespace,
            spec: None,
            requested: Capacity::default(),
            acknowledged: None,
            correlation_id: caller.correlation_id.clone(),
        };
        let key = (cluster.to_owned(), id.to_owned());
        let name = unit_key(&key);
        let change = Transaction::new()
            .check(name.clone(), Check::Absent)
            .put(name, encode(&deletion)?)
            .fenced(&self.lease);
        if !self.cache.commit(change).await? {
            return Err(conflict("NO_ORPHAN", format!("{id} on {cluster} is no orphan any more")));
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
                Observation::Present(_) | Observation::Absent | Observation::Unknown => {
                    return None;
                }
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
        let name = unit_key(key);
        let change = Transaction::new()
            .check(name.clone(), Check::Version(stored.version))
            .delete(name)
            .fenced(&self.lease);
        if !self.cache.commit(change).await? {
            return Ok(());
        }
        let (cluster, id) = key;
        Err(conflict("REFUSED", format!("{cluster} rejects the deletion of {id}: {why}")))
    }
}
