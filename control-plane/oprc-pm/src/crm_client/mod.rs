//! Clients of the clusters' CRMs: calls behind a circuit breaker, and a cache of what each cluster
//! reports on its watch stream.

mod breaker;
mod class_cache;
mod client;
mod facts;
mod watch;

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join_all;
use oprc_rest::Health;

pub use self::{
    class_cache::{ClassCache, acknowledged, observed_unit},
    client::CrmClient,
};
use crate::{config::ClusterConfig, planner::ClusterFacts};

/// The configured clusters by name.
#[derive(Default)]
pub struct Clusters {
    clients: BTreeMap<String, Arc<CrmClient>>,
}

impl Clusters {
    /// `deadline` bounds calls that change something. Connections are opened on first use.
    pub fn new(configured: impl IntoIterator<Item = ClusterConfig>, deadline: Duration) -> Self {
        let client = |it: ClusterConfig| (it.name.clone(), Arc::new(CrmClient::new(it, deadline)));
        Self { clients: configured.into_iter().map(client).collect() }
    }

    /// Watches all clusters. Never returns.
    pub async fn run(&self) {
        if self.clients.is_empty() {
            return std::future::pending().await;
        }
        join_all(self.clients.values().map(|client| watch::follow(client))).await;
    }

    pub fn client(&self, cluster: &str) -> Option<&Arc<CrmClient>> {
        self.clients.get(cluster)
    }

    pub fn clients(&self) -> impl Iterator<Item = &Arc<CrmClient>> {
        self.clients.values()
    }

    pub fn facts(&self) -> BTreeMap<String, ClusterFacts> {
        self.clients.iter().map(|(name, client)| (name.clone(), facts::facts(client))).collect()
    }

    /// `units` is the number of units on each cluster.
    pub fn view(&self, units: &BTreeMap<String, usize>) -> Vec<oprc_rest::Cluster> {
        let units_on = |name: &str| units.get(name).copied().unwrap_or_default();
        let view = |client: &Arc<CrmClient>| facts::view(client, units_on(client.name()));
        self.clients.values().map(view).collect()
    }

    /// The name and health of each cluster, and the reason unless it is healthy.
    pub fn health(&self) -> impl Iterator<Item = (&str, Health, String)> {
        self.clients.values().map(|client| {
            let (health, message) = facts::health(&client.class_cache());
            (client.name(), health, message)
        })
    }
}
