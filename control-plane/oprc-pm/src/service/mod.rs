//! Deployments as the API offers them. A change stores the desired state in one transaction before
//! any cluster is called; the dispatcher does the rest.

mod adopt;
mod apply;
mod delete;
mod forget_cluster;
mod grids;
mod orphans;
mod overview;
mod package_locks;
mod precondition;
mod rollback;
mod runtimes;

use std::sync::Arc;

use oprc_cp_storage::{Entry, Lease};
use oprc_models::{Document, OClassDeployment};
use oprc_rest::{Deployment, DeploymentCondition, DeploymentStatus, Event, Page, Plan, Revision};

pub use self::{package_locks::PackageLocks, precondition::Precondition, runtimes::RuntimeFilter};
use crate::{
    blocking::run_blocking,
    crm_client::{Clusters, CrmClient},
    dispatcher::{CallBackoff, EventLog, status},
    error::Error,
    paging::MAX_PAGE_SIZE,
    planner::{self, Defaults},
    registry::Registry,
    rollout::DeploymentRecord,
    state::{
        Cache, Versioned, VersionedUnit,
        schema::{decode, revision_key},
    },
};

#[derive(Clone, Debug, Default)]
pub struct Caller {
    pub name: Option<String>,
    pub correlation_id: String,
}

/// All criteria must hold.
#[derive(Clone, Debug, Default)]
pub struct DeploymentFilter {
    /// Prefix of the key.
    pub prefix: Option<String>,
    pub package: Option<String>,
    /// With units on this cluster.
    pub cluster: Option<String>,
    pub condition: Option<DeploymentCondition>,
}

pub struct DeploymentService {
    pub lease: Arc<Lease>,
    pub cache: Arc<Cache>,
    pub registry: Registry,
    pub clusters: Arc<Clusters>,
    pub call_backoff: Arc<CallBackoff>,
    pub events: Arc<EventLog>,
    pub defaults: Defaults,
    pub package_locks: PackageLocks,
}

impl DeploymentService {
    /// The plan of a deployment if these packages were published. Changes nothing.
    pub async fn plan(
        &self,
        deployment: &OClassDeployment,
        packages: &[Document],
    ) -> Result<Plan, Error> {
        if deployment.package.is_none() {
            return Err(Error::Parameter { field: "package", message: "is missing".to_owned() });
        }
        let (registry, deployment) = (self.registry.clone(), deployment.clone());
        let packages = packages.to_vec();
        let mut clusters = self.clusters.facts();
        let mut requested = self.cache.requested(&deployment.key);
        for (name, facts) in &mut clusters {
            facts.requested = requested.remove(name).unwrap_or_default();
        }
        let before = self.cache.deployment(&deployment.key);
        let defaults = self.defaults.clone();
        let plan = move || {
            let package = registry.package_of(&deployment, &packages)?;
            let plan = planner::plan(&planner::Request {
                deployment: &deployment,
                package: &package,
                clusters: &clusters,
                defaults: &defaults,
                current: before.as_ref().and_then(|it| it.record.running()).map(|(_, plan)| plan),
            });
            Ok(plan?)
        };
        run_blocking(plan).await?
    }

    /// A deployment, which must be at `revision` if given, and its units.
    fn stored(
        &self,
        key: &str,
        revision: Option<&str>,
    ) -> Result<(Versioned<DeploymentRecord>, Vec<VersionedUnit>), Error> {
        let (stored, units) = self.cache.deployment_with_units(key);
        let stored = stored.ok_or_else(|| Error::not_found("deployment", key))?;
        if revision.is_some_and(|revision| revision != stored.record.revision) {
            return Err(Error::Changed(stored.record.revision.clone()));
        }
        Ok((stored, units))
    }

    fn client(&self, cluster: &str) -> Result<&CrmClient, Error> {
        let client = self.clusters.client(cluster);
        client.map(AsRef::as_ref).ok_or_else(|| Error::not_found("cluster", cluster))
    }

    pub fn get(&self, key: &str) -> Result<Deployment, Error> {
        let (stored, units) = self.stored(key, None)?;
        Ok(self.document(&stored.record, &units))
    }

    fn document(&self, record: &DeploymentRecord, units: &[VersionedUnit]) -> Deployment {
        Deployment {
            deployment: record.deployment.clone(),
            revision: record.revision.clone(),
            created_at: record.created_at.to_string(),
            updated_at: record.updated_at.to_string(),
            updated_by: record.updated_by.clone(),
            plan: record.plan.clone(),
            status: status(record, units, &self.clusters, &self.call_backoff),
        }
    }

    pub fn status(&self, key: &str) -> Result<DeploymentStatus, Error> {
        let (stored, units) = self.stored(key, None)?;
        Ok(status(&stored.record, &units, &self.clusters, &self.call_backoff))
    }

    /// Deployments after `cursor`, sorted by key.
    pub fn list(
        &self,
        filter: &DeploymentFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Page<Deployment> {
        let found = self.cache.deployments().into_iter().filter(|it| {
            let (key, package) = (&it.record.deployment.key, &it.record.plan.package);
            cursor.is_none_or(|cursor| key.as_str() > cursor)
                && filter.prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix))
                && filter.package.as_ref().is_none_or(|it| it == package)
        });
        let documents = found.filter_map(|it| self.get(&it.record.deployment.key).ok());
        let mut documents = documents.filter(|it| {
            let on = |cluster: &String| it.status.units.iter().any(|unit| unit.cluster == *cluster);
            filter.cluster.as_ref().is_none_or(on)
                && filter.condition.is_none_or(|condition| condition == it.status.condition)
        });
        let items: Vec<_> = documents.by_ref().take(limit.clamp(1, MAX_PAGE_SIZE)).collect();
        let next = documents.next().and_then(|_| Some(items.last()?.deployment.key.clone()));
        Page { items, next }
    }

    /// The revisions of a deployment, latest first.
    pub async fn history(&self, key: &str) -> Result<Vec<Revision>, Error> {
        if self.cache.deployment(key).is_none() {
            return Err(Error::not_found("deployment", key));
        }
        let page = self.cache.store().list(&revision_key(key, "")).await?;
        let read = |entry: &Entry| decode(&entry.key, &entry.value);
        page.entries.iter().rev().map(read).collect()
    }

    /// The configured clusters, and those that still have units although they aren't.
    pub fn clusters(&self) -> Vec<oprc_rest::Cluster> {
        let counts = self.cache.units_per_cluster();
        let mut clusters = self.clusters.view(&counts);
        let removed = counts.into_iter().filter(|(name, _)| self.clusters.client(name).is_none());
        clusters.extend(removed.map(|(name, units)| oprc_rest::Cluster {
            name,
            message: "it is no longer configured and may still have units".to_owned(),
            units,
            ..oprc_rest::Cluster::default()
        }));
        clusters
    }

    fn publish_change(&self, kind: &str, record: &DeploymentRecord) {
        self.events.publish(Event {
            kind: kind.to_owned(),
            subject: record.deployment.key.clone(),
            message: format!("revision {}", record.revision),
            correlation_id: record.correlation_id.clone(),
            ..Event::default()
        });
    }
}
