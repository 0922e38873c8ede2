//! Rolling back to a former revision.

use oprc_models::VersionRange;
use oprc_rest::Deployment;

use super::{Caller, DeploymentService, Precondition};
use crate::error::Error;

impl DeploymentService {
    /// Applies a former revision as a new one, by default the one before. It is planned again. The
    /// deployment must be at revision `expected`, if given.
    pub async fn rollback(
        &self,
        key: &str,
        to: Option<&str>,
        expected: Option<&str>,
        caller: &Caller,
    ) -> Result<Deployment, Error> {
        let (stored, _) = self.stored(key, expected)?;
        let now = &stored.record.revision;
        let history = self.history(key).await?;
        let found = history.into_iter().find(|revision| match to {
            Some(to) => revision.revision == to,
            None => revision.revision < *now,
        });
        let found = found.ok_or_else(|| {
            Error::not_found("revision", to.map_or_else(|| format!("before {now}"), str::to_owned))
        })?;
        let mut deployment = found.deployment;
        // The version that was deployed, not the newest in the range now.
        if let Ok(version) = found.version.parse() {
            deployment.version = Some(VersionRange::exact(&version));
        }
        let cause = format!("rollback to {}", found.revision);
        let precondition = Precondition::Revision(now.clone());
        let (deployment, _) = self.apply(deployment, &precondition, &cause, caller).await?;
        Ok(deployment)
    }
}
