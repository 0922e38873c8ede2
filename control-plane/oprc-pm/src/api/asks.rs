//! What handlers ask of deployments, clusters and events.

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use oprc_models::OClassDeployment;
use oprc_rest::{
    ClassRuntime, Cluster, Deployment, DeploymentStatus, Event, FunctionStatus, Page, Plan,
    Revision,
};

use super::caller::Caller;
use crate::{error::Error, registry::Paging};

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

/// Which deployments are looked for: all of it must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeploymentFilter {
    /// The package.
    pub package: Option<String>,
    /// How the deployment is, as it is written.
    pub condition: Option<String>,
    /// A cluster that it goes to.
    pub cluster: Option<String>,
}

/// Which class runtimes are looked for: all of it must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeFilter {
    /// The cluster.
    pub cluster: Option<String>,
    /// The deployment.
    pub deployment: Option<String>,
    /// `driven`, `orphan` or `foreign`.
    pub ownership: Option<String>,
}

/// What a stream of events tells.
#[derive(Clone, Debug)]
pub enum Told {
    /// Something that has happened.
    Event(Arc<Event>),
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
    /// What a deployment would come to.
    async fn plan(&self, deployment: OClassDeployment) -> Result<Plan, Error>;
    /// Has a deployment be taken away.
    async fn delete(
        &self,
        key: &str,
        expected: &Expected,
        caller: &Caller,
    ) -> Result<Deployment, Error>;
    /// A deployment.
    async fn get(&self, key: &str) -> Result<Deployment, Error>;
    /// Deployments, by key.
    async fn list(
        &self,
        filter: &DeploymentFilter,
        paging: &Paging,
    ) -> Result<Page<Deployment>, Error>;
    /// How a deployment is.
    async fn status(&self, key: &str) -> Result<DeploymentStatus, Error>;
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
    /// What clusters have.
    async fn runtimes(
        &self,
        filter: &RuntimeFilter,
        paging: &Paging,
    ) -> Result<Page<ClassRuntime>, Error>;
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
    /// How a function of a package is where it is deployed.
    fn function_status(&self, package: &str, function: &str) -> Vec<FunctionStatus>;
    /// How each deployment is, in a word.
    fn conditions(&self) -> Vec<String>;
    /// What keeps deployments from being driven.
    fn trouble(&self) -> Option<String>;
    /// Tells all who follow.
    fn tell(&self, event: Event);
    /// What happens from here on, or behind an event that was told before.
    fn follow(&self, after: Option<&str>) -> BoxStream<'static, Told>;
}
