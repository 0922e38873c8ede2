//! The clusters that are configured, the ways to their CRMs, and what they tell.

mod breaker;
mod facts;
mod link;
mod observed;
mod stream;

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join_all;

pub(crate) use self::breaker::delays;
pub use self::{link::Link, observed::Observed};
use crate::{config::ClusterConfig, planner::ClusterFacts};

/// All clusters that are configured, by name.
#[derive(Default)]
pub struct Clusters {
    links: BTreeMap<String, Arc<Link>>,
}

impl Clusters {
    /// The ways to clusters, and how long a call may take; none is gone before
    /// [`Clusters::run`].
    pub fn new(configured: impl IntoIterator<Item = ClusterConfig>, deadline: Duration) -> Self {
        let link = |it: ClusterConfig| (it.name.clone(), Arc::new(Link::new(it, deadline)));
        let links = configured.into_iter().map(link);
        Self { links: links.collect() }
    }

    /// Follows what all of them tell. Never returns; dropping it ends it.
    pub async fn run(&self) {
        if self.links.is_empty() {
            return std::future::pending().await;
        }
        join_all(self.links.values().cloned().map(stream::follow)).await;
    }

    /// The way to one, where it is configured.
    pub fn link(&self, cluster: &str) -> Option<&Arc<Link>> {
        self.links.get(cluster)
    }

    /// All of them.
    pub fn links(&self) -> impl Iterator<Item = &Arc<Link>> {
        self.links.values()
    }

    /// Asks all of them anew for what a plan goes by, where that is old.
    pub async fn refresh(&self) {
        join_all(self.links.values().map(Link::refresh)).await;
    }

    /// What is known of all of them for a plan, asked anew where that is old.
    pub async fn facts(&self) -> BTreeMap<String, ClusterFacts> {
        self.refresh().await;
        let facts = |link: &Arc<Link>| (link.name().to_owned(), facts::facts(link, link.info()));
        self.links.values().map(facts).collect()
    }

    /// How all of them are. `units` tells how many units are driven on one.
    pub fn view(&self, units: impl Fn(&str) -> usize) -> Vec<oprc_rest::Cluster> {
        self.links.values().map(|link| facts::view(link, units(link.name()))).collect()
    }
}
