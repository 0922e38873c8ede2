//! Deployments that are made up.

use std::sync::Mutex;

use futures::{StreamExt as _, stream, stream::BoxStream};
use oprc_models::{Document, OClassDeployment};
use oprc_rest::{
    ClassRuntime, Cluster, Deployment, DeploymentStatus, Event, FunctionStatus, Health, Page, Plan,
    Revision,
};

use super::*;
use crate::{
    error::Error,
    service::{Caller, DeploymentFilter, RuntimeFilter},
};

/// Remembers what it was asked, and answers what is simplest.
#[derive(Default)]
pub(super) struct Fake {
    pub(super) kept: Mutex<Option<Deployment>>,
    pub(super) asked: Mutex<Vec<String>>,
    pub(super) told: Mutex<Vec<Event>>,
}

impl Fake {
    fn found(&self, key: &str) -> Result<Deployment, Error> {
        let kept = self.kept.lock().unwrap().clone();
        let found = kept.filter(|kept| kept.deployment.key == key);
        found.ok_or_else(|| Error::not_found("deployment", key))
    }

    fn note(&self, what: String) {
        self.asked.lock().unwrap().push(what);
    }
}

#[async_trait::async_trait]
impl Deploying for Fake {
    async fn apply(
        &self,
        deployment: OClassDeployment,
        expected: &Expected,
        caller: &Caller,
    ) -> Result<(Deployment, bool), Error> {
        let mut kept = self.kept.lock().unwrap();
        let former = kept.as_ref().map(|kept| kept.revision.clone());
        if let Some(revision) = &former
            && (expected.none || expected.revision.as_ref().is_some_and(|it| it != revision))
        {
            return Err(Error::Changed(revision.clone()));
        }
        let revision = if former.is_some() { "r2" } else { "r1" }.to_owned();
        let updated_by = caller.name.clone();
        let made = Deployment { deployment, revision, updated_by, ..Deployment::default() };
        *kept = Some(made.clone());
        Ok((made, former.is_none()))
    }

    async fn try_out(
        &self,
        deployment: &OClassDeployment,
        expected: &Expected,
        _: &Caller,
    ) -> Result<Plan, Error> {
        if let Ok(kept) = self.found(&deployment.key)
            && (expected.none || expected.revision.as_ref().is_some_and(|it| *it != kept.revision))
        {
            return Err(Error::Changed(kept.revision));
        }
        Ok(Plan { deployment: deployment.key.clone(), ..Plan::default() })
    }

    async fn plan(
        &self,
        deployment: &OClassDeployment,
        packages: &[Document],
    ) -> Result<Plan, Error> {
        let package = packages.len().to_string();
        Ok(Plan { deployment: deployment.key.clone(), package, ..Plan::default() })
    }

    async fn delete(&self, key: &str, _: &Expected, _: &Caller) -> Result<Deployment, Error> {
        self.found(key)
    }

    fn get(&self, key: &str) -> Result<Deployment, Error> {
        self.found(key)
    }

    fn list(&self, _: &DeploymentFilter, _: Option<&str>, _: usize) -> Page<Deployment> {
        Page { items: self.kept.lock().unwrap().iter().cloned().collect(), next: None }
    }

    fn status(&self, key: &str) -> Result<DeploymentStatus, Error> {
        Ok(self.found(key)?.status)
    }

    async fn history(&self, key: &str) -> Result<Vec<Revision>, Error> {
        self.found(key).map(|_| Vec::new())
    }

    async fn rollback(
        &self,
        key: &str,
        revision: Option<&str>,
        _: &Expected,
        _: &Caller,
    ) -> Result<Deployment, Error> {
        self.note(format!("rollback {key} {revision:?}"));
        self.found(key)
    }

    fn runtimes(&self, filter: &RuntimeFilter, _: Option<&str>, _: usize) -> Page<ClassRuntime> {
        self.note(format!("runtimes {:?}", filter.ownership));
        Page { items: Vec::new(), next: None }
    }

    fn runtime(&self, id: &str, cluster: Option<&str>) -> Result<ClassRuntime, Error> {
        self.note(format!("runtime {id} {cluster:?}"));
        Ok(ClassRuntime { id: id.to_owned(), ..ClassRuntime::default() })
    }

    async fn adopt(&self, _: &str, id: &str, _: &str, _: &Caller) -> Result<Deployment, Error> {
        Err(Error::not_found("orphan", id))
    }

    async fn delete_orphan(&self, _: &str, id: &str, _: &Caller) -> Result<(), Error> {
        Err(Error::not_found("orphan", id))
    }

    fn clusters(&self) -> Vec<Cluster> {
        let named =
            |name: &str, health| Cluster { name: name.to_owned(), health, ..Cluster::default() };
        vec![named("east", Health::Healthy), named("west", Health::Unreachable)]
    }

    async fn forget_cluster(&self, name: &str, _: &Caller) -> Result<usize, Error> {
        Err(Error::not_found("cluster", name))
    }

    fn functions(&self, package: &str, version: Option<&str>) -> Vec<FunctionStatus> {
        self.note(format!("functions {package} {version:?}"));
        let named = |key: &str| FunctionStatus { key: key.to_owned(), ..FunctionStatus::default() };
        vec![named("other"), named("greet")]
    }

    fn conditions(&self) -> Vec<String> {
        self.note("conditions".to_owned());
        vec!["RUNNING".to_owned(), "RUNNING".to_owned()]
    }

    fn trouble(&self) -> Option<String> {
        None
    }

    fn tell(&self, event: Event) {
        self.told.lock().unwrap().push(event);
    }

    fn follow(&self, after: Option<&str>) -> BoxStream<'static, Told> {
        let told = |id: &str, kind: &str| {
            let event = Event { id: id.to_owned(), kind: kind.to_owned(), ..Event::default() };
            Told::Event(Box::new(event))
        };
        let all = [told("1", "package.published"), told("2", "deployment.created")];
        let skip = usize::from(after == Some("1"));
        let gap = (after == Some("0")).then_some(Told::Gap);
        stream::iter(gap.into_iter().chain(all.into_iter().skip(skip)))
            .chain(stream::pending())
            .boxed()
    }
}
