//! What a change of what is wanted would come to.

use oprc_models::{OClassDeployment, check_deployment};
use oprc_rest::Plan;

use super::{
    Caller, Deployments,
    change::{expect, stay},
};
use crate::error::Error;

impl Deployments {
    /// The plan that making or changing a deployment would store, refused where that would be:
    /// where it isn't at the revision that is given, or there is one and it must be `new`. Nothing
    /// is changed.
    pub async fn try_out(
        &self,
        deployment: &OClassDeployment,
        revision: Option<&str>,
        new: bool,
        caller: &Caller,
    ) -> Result<Plan, Error> {
        check_deployment(deployment)?;
        let (before, units) = self.book.whole(&deployment.key);
        expect(before.as_ref(), revision, new)?;
        let mut plan = self.plan(deployment, &[]).await?;
        stay(&mut plan, |key| self.book.unit(key))?;
        // What would be stored is made for what it would be refused for.
        self.change(deployment, plan.clone(), (before, units), "dry run", caller).await?;
        Ok(plan)
    }
}
