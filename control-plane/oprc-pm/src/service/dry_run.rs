//! Dry runs of changes.

use oprc_models::{OClassDeployment, check_deployment};
use oprc_rest::Plan;

use super::{
    Caller, DeploymentService,
    apply::{check_precondition, pin_namespaces},
};
use crate::error::Error;

impl DeploymentService {
    /// The plan that creating or updating a deployment would store, or the error it would return.
    /// The deployment must be at `revision` if given, and absent if `must_be_new`.
    pub async fn dry_run(
        &self,
        deployment: &OClassDeployment,
        revision: Option<&str>,
        must_be_new: bool,
        caller: &Caller,
    ) -> Result<Plan, Error> {
        check_deployment(deployment)?;
        let before = self.cache.deployment_with_units(&deployment.key);
        check_precondition(before.0.as_ref(), revision, must_be_new)?;
        let mut plan = self.plan(deployment, &[]).await?;
        pin_namespaces(&mut plan, |key| self.cache.unit(key))?;
        // Built for its errors only.
        self.change(deployment, plan.clone(), before, "dry run", caller).await?;
        Ok(plan)
    }
}
