//! What handlers ask of deployments, clusters and events.

use async_trait::async_trait;
use futures::stream::BoxStream;
use oprc_models::{Document, OClassDeployment};
use oprc_rest::{
    ClassRuntime, Cluster, Deployment, DeploymentStatus, Event, FunctionStatus, Page, Plan,
    Revision,
};

use crate::{
    error::Error,
    service::{Caller, DeploymentFilter, RuntimeFilter},
};

/// What a change must find.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// This revision.
    pub revision: Option<String>,
    /// A deployment, whichever.
    pub some: bool,
    /// No deployment.
    pub none: bool,
}

/// What a stream of events tells.
#[derive(Clone, Debug)]
pub enum Told {
    /// Something that has happened.
    Event(Box<Event>),
    /// Some of what has happened is lost to this reader.
    Gap,
}

/// Deployments, the clusters that they go to, and what happens.
#[async_trait]
pub trait Deploying: Send + Sync + 'static {
    /// Makes a deployment or changes it; tells whether it was made.
    async fn apply(
        &self,
        deployment: OClassDeployment,
        expected: &Expected,
        caller: &Caller,
    ) -> Result<(Deployment, bool), Error>;
    /// The plan that making a deployment or changing it would store, refused where that would be.
    async fn try_out(
        &self,
        deployment: &OClassDeployment,
        expected: &Expected,
        caller: &Caller,
    ) -> Result<Plan, Error>;
    /// What a deployment would come to if these packages were published.
    async fn plan(
        &self,
        deployment: &OClassDeployment,
        packages: &[Document],
    ) -> Result<Plan, Error>;
    /// Has a deployment be taken away.
    async fn delete(
        &self,
        key: &str,
        expected: &Expected,
        caller: &Caller,
    ) -> Result<Deployment, Error>;
    /// A deployment.
    fn get(&self, key: &str) -> Result<Deployment, Error>;
    /// Deployments by key, those after one, a page of them.
    fn list(
        &self,
        filter: &DeploymentFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Page<Deployment>;
    /// How a deployment is.
    fn status(&self, key: &str) -> Result<DeploymentStatus, Error>;
    /// What was wanted, the newest first.
    async fn history(&self, key: &str) -> Result<Vec<Revision>, Error>;
    /// Goes back to a former revision: the one before, where none is named.
    async fn rollback(
        &self,
        key: &str,
        revision: Option<&str>,
        expected: &Expected,
        caller: &Caller,
    ) -> Result<Deployment, Error>;
    /// What clusters have, by cluster and id, what is after one, a page of it.
    fn runtimes(
        &self,
        filter: &RuntimeFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Page<ClassRuntime>;
    /// A class runtime, by its id, on that cluster or on whichever has it.
    fn runtime(&self, id: &str, cluster: Option<&str>) -> Result<ClassRuntime, Error>;
    /// Has a deployment have an orphan.
    async fn adopt(
        &self,
        cluster: &str,
        id: &str,
        deployment: &str,
        caller: &Caller,
    ) -> Result<Deployment, Error>;
    /// Deletes an orphan.
    async fn delete_orphan(&self, cluster: &str, id: &str, caller: &Caller) -> Result<(), Error>;
    /// The clusters that are configured.
    fn clusters(&self) -> Vec<Cluster>;
    /// Forgets the units of a cluster that isn't configured any more.
    async fn forget_cluster(&self, name: &str, caller: &Caller) -> Result<usize, Error>;
    /// How the functions of a package are where they are deployed, in that version or in any.
    fn functions(&self, package: &str, version: Option<&str>) -> Vec<FunctionStatus>;
    /// How each deployment is, in a word.
    fn conditions(&self) -> Vec<String>;
    /// What keeps deployments from being driven.
    fn trouble(&self) -> Option<String>;
    /// Tells all who follow.
    fn tell(&self, event: Event);
    /// What happens from here on, or behind an event that was told before.
    fn follow(&self, after: Option<&str>) -> BoxStream<'static, Told>;
}
