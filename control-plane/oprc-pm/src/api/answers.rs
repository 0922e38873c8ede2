//! How deployments answer what handlers ask.

use async_trait::async_trait;
use futures::{StreamExt as _, stream::BoxStream};
use oprc_models::{Document, OClassDeployment};
use oprc_rest::{
    ClassRuntime, Cluster, Deployment, DeploymentCondition, DeploymentStatus, Event,
    FunctionStatus, Page, Plan, Revision,
};

use super::asks::{Deploying, Expected, Told};
use crate::{
    dispatcher::StreamItem,
    error::Error,
    service::{Caller, DeploymentFilter, DeploymentService as Deployments, RuntimeFilter},
};

#[async_trait]
impl Deploying for Deployments {
    async fn apply(
        &self,
        deployment: OClassDeployment,
        expected: &Expected,
        caller: &Caller,
    ) -> Result<(Deployment, bool), Error> {
        if expected.none {
            return Ok((self.create(deployment, caller).await?, true));
        }
        let revision = revision(self, &deployment.key, expected)?;
        self.put(deployment, revision.as_deref(), caller).await
    }

    async fn try_out(
        &self,
        deployment: &OClassDeployment,
        expected: &Expected,
        caller: &Caller,
    ) -> Result<Plan, Error> {
        let revision = revision(self, &deployment.key, expected)?;
        Self::dry_run(self, deployment, revision.as_deref(), expected.none, caller).await
    }

    async fn plan(
        &self,
        deployment: &OClassDeployment,
        packages: &[Document],
    ) -> Result<Plan, Error> {
        Self::plan(self, deployment, packages).await
    }

    async fn delete(
        &self,
        key: &str,
        expected: &Expected,
        caller: &Caller,
    ) -> Result<Deployment, Error> {
        Self::delete(self, key, expected.revision.as_deref(), caller).await
    }

    fn get(&self, key: &str) -> Result<Deployment, Error> {
        Self::get(self, key)
    }

    fn list(
        &self,
        filter: &DeploymentFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Page<Deployment> {
        Self::list(self, filter, after, limit)
    }

    fn status(&self, key: &str) -> Result<DeploymentStatus, Error> {
        Self::status(self, key)
    }

    async fn history(&self, key: &str) -> Result<Vec<Revision>, Error> {
        Self::history(self, key).await
    }

    async fn rollback(
        &self,
        key: &str,
        revision: Option<&str>,
        expected: &Expected,
        caller: &Caller,
    ) -> Result<Deployment, Error> {
        Self::rollback(self, key, revision, expected.revision.as_deref(), caller).await
    }

    fn runtimes(
        &self,
        filter: &RuntimeFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Page<ClassRuntime> {
        self.class_runtimes(filter, after, limit)
    }

    fn runtime(&self, id: &str, cluster: Option<&str>) -> Result<ClassRuntime, Error> {
        self.class_runtime(id, cluster)
    }

    async fn adopt(
        &self,
        cluster: &str,
        id: &str,
        deployment: &str,
        caller: &Caller,
    ) -> Result<Deployment, Error> {
        Self::adopt(self, cluster, id, deployment, caller).await
    }

    async fn delete_orphan(&self, cluster: &str, id: &str, caller: &Caller) -> Result<(), Error> {
        Self::delete_orphan(self, cluster, id, caller).await
    }

    fn clusters(&self) -> Vec<Cluster> {
        Self::clusters(self)
    }

    async fn forget_cluster(&self, name: &str, caller: &Caller) -> Result<usize, Error> {
        Self::forget_cluster(self, name, caller).await
    }

    fn functions(&self, package: &str, version: Option<&str>) -> Vec<FunctionStatus> {
        Self::functions(self, package, version)
    }

    fn conditions(&self) -> Vec<String> {
        let counts = self.count_conditions();
        counts.iter().flat_map(|(condition, count)| vec![word(*condition); *count]).collect()
    }

    fn trouble(&self) -> Option<String> {
        self.not_ready()
    }

    fn tell(&self, event: Event) {
        self.events.publish(event);
    }

    fn follow(&self, after: Option<&str>) -> BoxStream<'static, Told> {
        let told = |item| match item {
            StreamItem::Event(event) => Told::Event(event),
            StreamItem::Gap => Told::Gap,
        };
        self.events.stream(after).map(told).boxed()
    }
}

/// The revision that a change is for, where it is for one.
fn revision(
    deployments: &Deployments,
    key: &str,
    expected: &Expected,
) -> Result<Option<String>, Error> {
    if !expected.some || expected.revision.is_some() {
        return Ok(expected.revision.clone());
    }
    // Whichever it is: it must still be that one when it is changed.
    let found = deployments.get(key);
    Ok(Some(found.map_err(|_| Error::Changed("nothing".to_owned()))?.revision))
}

fn word(condition: DeploymentCondition) -> String {
    let word = serde_json::to_value(condition).ok();
    word.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
}
