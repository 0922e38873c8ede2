//! Deleting deployments.

use oprc_rest::Deployment;

use super::{Caller, DeploymentService};
use crate::{
    clock,
    error::Error,
    rollout::{DeploymentRecord, Stage, desired_units},
    state::{Attempt, records_of, replace_deployment},
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
            let (stored, known) = self.stored(key, revision)?;
            if stored.record.is_deleting() {
                return Ok(Attempt::Done((self.document(&stored.record, &known), None)));
            }
            let record = DeploymentRecord {
                stage: Stage::Deleting,
                stage_since: clock::now(),
                former: None,
                correlation_id: caller.correlation_id.clone(),
                updated_by: caller.name.clone(),
                ..stored.record.as_ref().clone()
            };
            let mut units = desired_units(&record, &records_of(&known));
            for unit in units.values_mut() {
                unit.correlation_id.clone_from(&caller.correlation_id);
            }
            let change = replace_deployment(key, Some(&stored), Some(&record), &known, &units)?;
            let document = self.document(&record, &known);
            Ok(Attempt::Commit(change.fenced(&self.lease), (document, Some(record))))
        };
        let (document, changed) = self.cache.commit_with_retry(build).await?;
        if let Some(record) = changed {
            self.publish_change("deployment.updated", &record);
        }
        // It may be removed already.
        Ok(self.get(key).unwrap_or(document))
    }
}
