//! Deleting deployments.

use oprc_cp_storage::{Check, Transaction};
use oprc_rest::Deployment;

use super::{Caller, DeploymentService};
use crate::{
    clock,
    error::Error,
    rollout::{DeploymentRecord, Stage, UnitRecord},
    state::{
        Attempt,
        schema::{deployment_key, encode, unit_key},
    },
};

impl DeploymentService {
    /// Marks a deployment for deletion; it is removed once all of its units are.
    pub async fn delete(
        &self,
        key: &str,
        revision: Option<&str>,
        caller: &Caller,
    ) -> Result<Deployment, Error> {
        let build = || async move {
            let (stored, units) = self.cache.deployment_with_units(key);
            let stored = stored.ok_or_else(|| Error::not_found("deployment", key))?;
            if revision.is_some_and(|revision| revision != stored.record.revision) {
                return Err(Error::Changed(stored.record.revision.clone()));
            }
            if stored.record.is_deleting() {
                return Ok(Attempt::Done((self.document(&stored.record, &units), None)));
            }
            let record = DeploymentRecord {
                stage: Stage::Deleting { since: clock::now() },
                former: None,
                correlation_id: caller.correlation_id.clone(),
                updated_by: caller.name.clone(),
                ..stored.record.as_ref().clone()
            };
            let name = deployment_key(key);
            let mut change = Transaction::new()
                .check(name.clone(), Check::Version(stored.version))
                .put(name, encode(&record)?)
                .fenced(&self.lease);
            for (unit, stored) in &units {
                let deleted = UnitRecord {
                    spec: None,
                    correlation_id: caller.correlation_id.clone(),
                    ..stored.record.as_ref().clone()
                };
                let name = unit_key(unit);
                let check = Check::Version(stored.version);
                change = change.check(name.clone(), check).put(name, encode(&deleted)?);
            }
            let document = self.document(&record, &units);
            Ok(Attempt::Commit(change, (document, Some(record))))
        };
        let (document, changed) = self.cache.commit_with_retry(build).await?;
        if let Some(record) = changed {
            self.publish_change("deployment.updated", &record);
        }
        // It may be removed already.
        Ok(self.get(key).unwrap_or(document))
    }
}
