//! Deployments: what is wanted is stored here, all of it in one transaction, before anything is
//! done about it; how it is, is told from what is stored and what clusters tell.

mod book;
mod change;
mod events;
mod forget;
mod orphans;
mod runtimes;
mod status;
mod try_out;
mod turns;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use oprc_cp_storage::{Ownership, Store};
use oprc_models::{Document, OClassDeployment};
use oprc_rest::{Deployment, DeploymentCondition, DeploymentStatus, Page, Plan, Revision};

pub use self::{
    book::{Book, Kept, KeptUnit, UnitKey, Whole},
    events::{Events, Listening},
    runtimes::RuntimeFilter,
    status::status,
    turns::Turns,
};
use crate::{
    clusters::Clusters,
    dispatcher::Troubles,
    error::Error,
    heavy::heavy,
    planner::{self, Defaults},
    records::{self, DeploymentRecord, Stage},
    registry::Registry,
};

/// How many deployments a page has at most.
pub const PAGE: usize = 500;

/// Who asks for a change.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// Who, where that is known.
    pub name: Option<String>,
    /// The id of the call.
    pub correlation_id: String,
}

/// Which deployments are listed.
#[derive(Clone, Debug, Default)]
pub struct DeploymentFilter {
    /// Keys that begin so.
    pub prefix: Option<String>,
    /// Of this package.
    pub package: Option<String>,
    /// With units on this cluster.
    pub cluster: Option<String>,
    /// In this condition.
    pub condition: Option<DeploymentCondition>,
}

/// Deployments, for whoever asks.
pub struct Deployments {
    /// Where they are stored.
    pub store: Store,
    /// That nobody else drives them.
    pub ownership: Arc<Ownership>,
    /// What is stored.
    pub book: Arc<Book>,
    /// Their packages.
    pub registry: Registry,
    /// The clusters.
    pub clusters: Arc<Clusters>,
    /// What went wrong lately.
    pub troubles: Arc<Troubles>,
    /// Who is told.
    pub events: Arc<Events>,
    /// What holds for deployments that don't say.
    pub defaults: Defaults,
    /// Who changes something now.
    pub turns: Turns,
}

/// The plan of what runs: after a rollback that is the one before.
fn running(record: &DeploymentRecord) -> Option<&Plan> {
    match &record.stage {
        Stage::RollingBack { .. } | Stage::RolledBack { .. } => {
            record.former.as_ref().map(|former| &former.plan)
        }
        Stage::Driving { .. } | Stage::Settled { .. } | Stage::Deleting { .. } => {
            Some(&record.plan)
        }
    }
}

impl Deployments {
    /// What a deployment would come to if these packages were published. Nothing is changed.
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
        let find = move || {
            let package = registry.package_of(&deployment, &packages);
            package.map(|package| (deployment, package))
        };
        let (deployment, package) = heavy(find).await??;
        let mut clusters = self.clusters.facts().await;
        for (name, facts) in &mut clusters {
            facts.taken = self.book.asks(name, &deployment.key).on(facts);
        }
        let former = self.book.deployment(&deployment.key);
        let defaults = self.defaults.clone();
        let plan = move || {
            planner::plan(&planner::Request {
                deployment: &deployment,
                package: &package,
                clusters: &clusters,
                defaults: &defaults,
                former: former.as_ref().and_then(|kept| running(&kept.record)),
            })
        };
        Ok(heavy(plan).await??)
    }

    /// A deployment and how it is.
    pub fn get(&self, key: &str) -> Result<Deployment, Error> {
        let (kept, units) = self.book.whole(key);
        let kept = kept.ok_or_else(|| Error::not_found("deployment", key))?;
        Ok(self.document(&kept.record, &units))
    }

    fn document(&self, record: &DeploymentRecord, units: &[KeptUnit]) -> Deployment {
        Deployment {
            deployment: record.deployment.clone(),
            revision: record.revision.clone(),
            created_at: record.created_at.clone(),
            updated_at: record.updated_at.clone(),
            updated_by: record.updated_by.clone(),
            plan: record.plan.clone(),
            status: status(record, units, &self.clusters, &self.troubles),
        }
    }

    /// How a deployment is.
    pub fn status(&self, key: &str) -> Result<DeploymentStatus, Error> {
        Ok(self.get(key)?.status)
    }

    /// Deployments by key, those after `cursor`, a page of them.
    pub fn list(
        &self,
        filter: &DeploymentFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Page<Deployment> {
        let limit = limit.clamp(1, PAGE);
        let mut items = Vec::new();
        for listed in self.book.deployments() {
            let key = &listed.record.deployment.key;
            if cursor.is_some_and(|cursor| key.as_str() <= cursor)
                || filter.prefix.as_ref().is_some_and(|prefix| !key.starts_with(prefix))
                || filter.package.as_ref().is_some_and(|it| *it != listed.record.plan.package)
            {
                continue;
            }
            let Ok(document) = self.get(key) else { continue };
            let on = |cluster: &String| {
                document.status.units.iter().any(|unit| unit.cluster == *cluster)
            };
            if filter.cluster.as_ref().is_some_and(|cluster| !on(cluster))
                || filter.condition.is_some_and(|it| it != document.status.condition)
            {
                continue;
            }
            if items.len() == limit {
                let last = items.last().map(|it: &Deployment| it.deployment.key.clone());
                return Page { items, next: last };
            }
            items.push(document);
        }
        Page { items, next: None }
    }

    /// What was wanted before and is now, latest first.
    pub async fn history(&self, key: &str) -> Result<Vec<Revision>, Error> {
        if self.book.deployment(key).is_none() {
            return Err(Error::not_found("deployment", key));
        }
        let page = self.store.list(&records::revision(key, "")).await?;
        let read = |entry: &oprc_cp_storage::Entry| records::read(&entry.key, &entry.value);
        page.entries.iter().rev().map(read).collect()
    }

    /// All clusters that are configured, and those that still have units though they aren't.
    pub fn clusters(&self) -> Vec<oprc_rest::Cluster> {
        let mut counts = self.book.count();
        let mut clusters = self.clusters.view(|name| counts.get(name).copied().unwrap_or_default());
        counts.retain(|name, _| self.clusters.link(name).is_none());
        clusters.extend(counts.into_iter().map(|(name, units)| oprc_rest::Cluster {
            name,
            message: "it isn't configured any more, and may still have units".to_owned(),
            units,
            ..oprc_rest::Cluster::default()
        }));
        clusters
    }
}
