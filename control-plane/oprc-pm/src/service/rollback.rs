//! Rolling back to a former revision.

use oprc_models::VersionRange;
use oprc_rest::Deployment;

use super::{Caller, DeploymentService};
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
        let stored = self.cache.deployment(key);
        let stored = stored.ok_or_else(|| Error::not_found("deployment", key))?;
        let now = &stored.record.revision;
        if expected.is_some_and(|expected| expected != now) {
            return Err(Error::Changed(now.clone()));
        }
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
        if !found.version.is_empty() {
            let exact = found.version.parse().ok().map(|it| VersionRange::exact(&it));
            deployment.version = exact.or(deployment.version);
        }
        let cause = format!("rollback to {}", found.revision);
        let (deployment, _) = self.apply(deployment, Some(now), &cause, caller).await?;
        Ok(deployment)
    }
}
