//! Figures for Prometheus.

use std::{sync::Arc, time::Duration};

use axum::http::{Method, StatusCode};
use oprc_rest::{Cluster, Health};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use tokio::{sync::Mutex, task::spawn_blocking, time::Instant};

use super::asks::Deploying;
use crate::error::Error;

/// So long figures are told again as they were counted.
const FRESH: Duration = Duration::from_secs(1);

/// Figures as they were told last.
struct Scraped {
    at: Instant,
    text: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Answered {
    method: String,
    route: String,
    status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Route {
    method: String,
    route: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByCluster {
    cluster: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByCondition {
    condition: String,
}

/// All figures.
pub struct Metrics {
    registry: Registry,
    answers: Family<Answered, Counter>,
    durations: Family<Route, Histogram, fn() -> Histogram>,
    clusters: Family<ByCluster, Gauge>,
    deployments: Family<ByCondition, Gauge>,
    scraped: Arc<Mutex<Option<Scraped>>>,
    /// Event streams that are open.
    pub streams: Gauge,
    /// Requests that were refused because there were too many, of one caller or of all.
    pub limited: Counter,
}

fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.000_5, 2.5, 12))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            answers: Family::default(),
            durations: Family::new_with_constructor(seconds),
            clusters: Family::default(),
            scraped: Arc::default(),
            deployments: Family::default(),
            streams: Gauge::default(),
            limited: Counter::default(),
        };
        let registry = &mut metrics.registry;
        registry.register(
            "pm_http_requests",
            "Requests by what was answered",
            metrics.answers.clone(),
        );
        registry.register(
            "pm_http_request_duration_seconds",
            "From a request to the beginning of its answer",
            metrics.durations.clone(),
        );
        registry.register(
            "pm_cluster_reachable",
            "Whether a cluster answers",
            metrics.clusters.clone(),
        );
        registry.register(
            "pm_deployments",
            "Deployments by how they are",
            metrics.deployments.clone(),
        );
        registry.register(
            "pm_event_streams",
            "Event streams that are open",
            metrics.streams.clone(),
        );
        registry.register(
            "pm_http_requests_limited",
            "Requests that were refused because there were too many",
            metrics.limited.clone(),
        );
        metrics
    }
}

impl Metrics {
    /// A request was answered.
    pub fn answered(&self, method: &Method, route: &str, status: StatusCode, took: Duration) {
        // Callers may make methods up: figures don't grow with that.
        let known = [
            Method::GET,
            Method::PUT,
            Method::POST,
            Method::DELETE,
            Method::HEAD,
            Method::OPTIONS,
            Method::PATCH,
        ];
        let method = if known.contains(method) { method.as_str() } else { "other" }.to_owned();
        let route = route.to_owned();
        let by = Route { method: method.clone(), route: route.clone() };
        self.durations.get_or_create(&by).observe(took.as_secs_f64());
        self.answers.get_or_create(&Answered { method, route, status: status.as_u16() }).inc();
    }

    /// How clusters and deployments are, with everything else, as OpenMetrics has it. It takes a
    /// while to count, and everybody may ask: that is done by one at a time, aside, and told again
    /// for a moment.
    pub async fn scrape(self: Arc<Self>, deployments: Arc<dyn Deploying>) -> Result<String, Error> {
        let mut scraped = Arc::clone(&self.scraped).lock_owned().await;
        if let Some(fresh) = scraped.as_ref().filter(|it| it.at.elapsed() < FRESH) {
            return Ok(fresh.text.clone());
        }
        // Who doesn't wait any more leaves it to the next.
        let count = spawn_blocking(move || {
            self.clusters(&deployments.clusters());
            self.deployments(deployments.conditions());
            let text = self.text();
            *scraped = Some(Scraped { at: Instant::now(), text: text.clone() });
            text
        });
        count.await.map_err(|error| Error::Internal(error.to_string()))
    }

    /// How the clusters are now.
    fn clusters(&self, clusters: &[Cluster]) {
        self.clusters.clear();
        for cluster in clusters {
            let by = ByCluster { cluster: cluster.name.clone() };
            let reachable = cluster.health != Health::Unreachable;
            self.clusters.get_or_create(&by).set(i64::from(reachable));
        }
    }

    /// How the deployments are now.
    fn deployments(&self, conditions: Vec<String>) {
        self.deployments.clear();
        for condition in conditions {
            self.deployments.get_or_create(&ByCondition { condition }).inc();
        }
    }

    /// All of them, as OpenMetrics has it.
    fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a String can't fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
