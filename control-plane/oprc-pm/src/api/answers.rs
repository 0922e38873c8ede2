//! How deployments answer what handlers ask.

use async_trait::async_trait;
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use oprc_models::{Document, OClassDeployment};
use oprc_rest::{
    ClassRuntime, Cluster, Deployment, DeploymentStatus, Event, FunctionStatus, Page, Plan,
    Revision,
};
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::asks::{Deploying, Expected, Told};
use crate::{
    deployments::{Caller, DeploymentFilter, Deployments, Kept, Listening, RuntimeFilter, status},
    error::Error,
    records::DeploymentRecord,
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
        Self::try_out(self, deployment, revision.as_deref(), expected.none, caller).await
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
        let mut functions = Vec::new();
        for kept in self.book.deployments() {
            let record = &kept.record;
            if record.plan.package == package
                && version.is_none_or(|version| record.plan.version == version)
                && let Ok(status) = Self::status(self, &record.deployment.key)
            {
                functions.extend(status.units.into_iter().flat_map(|unit| unit.functions));
            }
        }
        functions
    }

    fn conditions(&self) -> Vec<String> {
        let word = |kept: &Kept<DeploymentRecord>| {
            let (_, units) = self.book.whole(&kept.record.deployment.key);
            word(&status(&kept.record, &units, &self.clusters, &self.troubles))
        };
        self.book.deployments().iter().map(word).collect()
    }

    fn trouble(&self) -> Option<String> {
        (!self.ownership.is_held()).then(|| "another process drives the store".to_owned())
    }

    fn tell(&self, event: Event) {
        self.events.publish(event);
    }

    fn follow(&self, after: Option<&str>) -> BoxStream<'static, Told> {
        let Listening { missed, gap, coming } = self.events.listen(after);
        let missed = missed.into_iter().map(|event| Told::Event(Box::new(event)));
        let before = gap.then_some(Told::Gap).into_iter().chain(missed);
        stream::iter(before).chain(stream::unfold(coming, next)).boxed()
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

fn word(status: &DeploymentStatus) -> String {
    let word = serde_json::to_value(status.condition).ok();
    word.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
}

async fn next(mut coming: Receiver<Event>) -> Option<(Told, Receiver<Event>)> {
    match coming.recv().await {
        Ok(event) => Some((Told::Event(Box::new(event)), coming)),
        Err(RecvError::Lagged(_)) => Some((Told::Gap, coming)),
        Err(RecvError::Closed) => None,
    }
}
