//! Prometheus metrics.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::http::{Method, StatusCode};
use oprc_rest::{Cluster, DeploymentCondition, Health};
use prometheus_client::{
    encoding::text::{encode_eof, encode_registry},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use tokio::{sync::Mutex, task::spawn_blocking, time::Instant};

use crate::{error::Error, service::DeploymentService};

/// A scrape within this time of the one before gets the same text.
const SCRAPE_CACHE_TTL: Duration = Duration::from_secs(1);

struct Scrape {
    at: Instant,
    text: String,
}

/// Names and values.
type Labels<const N: usize> = [(&'static str, String); N];

pub struct Metrics {
    registry: Registry,
    requests: Family<Labels<3>, Counter>,
    durations: Family<Labels<2>, Histogram, fn() -> Histogram>,
    last_scrape: Arc<Mutex<Option<Scrape>>>,
    #[cfg(test)]
    pub evaluations: Counter,
    /// Open event streams.
    pub streams: Gauge,
    /// Requests rejected by a rate or concurrency limit.
    pub limited: Counter,
}

fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.000_5, 2.5, 12))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            requests: Family::default(),
            durations: Family::new_with_constructor(seconds),
            last_scrape: Arc::default(),
            #[cfg(test)]
            evaluations: Counter::default(),
            streams: Gauge::default(),
            limited: Counter::default(),
        };
        let registry = &mut metrics.registry;
        registry.register(
            "pm_http_requests",
            "HTTP requests by method, route and response status",
            metrics.requests.clone(),
        );
        registry.register(
            "pm_http_request_duration_seconds",
            "Time from receiving a request to sending the response headers",
            metrics.durations.clone(),
        );
        registry.register("pm_event_streams", "Open event streams", metrics.streams.clone());
        registry.register(
            "pm_http_requests_limited",
            "Requests rejected by a rate or concurrency limit",
            metrics.limited.clone(),
        );
        metrics
    }
}

impl Metrics {
    pub fn observe_request(
        &self,
        method: &Method,
        route: &str,
        status: StatusCode,
        duration: Duration,
    ) {
        // Callers can invent methods; label values must stay bounded.
        let known = ["GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH"];
        let method = known.into_iter().find(|it| *it == method.as_str()).unwrap_or("other");
        let [method, route] = [("method", method.to_owned()), ("route", route.to_owned())];
        let labels = [method.clone(), route.clone()];
        self.durations.get_or_create(&labels).observe(duration.as_secs_f64());
        let labels = [method, route, ("status", status.as_str().to_owned())];
        self.requests.get_or_create(&labels).inc();
    }

    /// All metrics in OpenMetrics text format. Evaluating every deployment is expensive and
    /// `/metrics` needs no token, so scrapes share one evaluation per [`SCRAPE_CACHE_TTL`].
    pub async fn scrape(
        self: Arc<Self>,
        deployments: Arc<DeploymentService>,
    ) -> Result<String, Error> {
        let mut last = Arc::clone(&self.last_scrape).lock_owned().await;
        if let Some(last) = last.as_ref().filter(|it| it.at.elapsed() < SCRAPE_CACHE_TTL) {
            return Ok(last.text.clone());
        }
        let evaluate = spawn_blocking(move || {
            #[cfg(test)]
            self.evaluations.inc();
            let text = self.render(&deployments.clusters(), deployments.count_conditions());
            *last = Some(Scrape { at: Instant::now(), text: text.clone() });
            text
        });
        evaluate.await.map_err(|error| Error::Internal(error.to_string()))
    }

    /// The state gauges are built anew for each scrape: shared ones that are cleared and refilled
    /// would show a concurrent scrape partial values.
    fn render(
        &self,
        clusters: &[Cluster],
        conditions: BTreeMap<DeploymentCondition, usize>,
    ) -> String {
        let reachable = Family::<Labels<1>, Gauge>::default();
        for cluster in clusters {
            let is_reachable = cluster.health != Health::Unreachable;
            let gauge = reachable.get_or_create(&[("cluster", cluster.name.clone())]);
            gauge.set(is_reachable.into());
        }
        let deployments = Family::<Labels<1>, Gauge>::default();
        for (condition, count) in conditions {
            let gauge = deployments.get_or_create(&[("condition", condition_label(condition))]);
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let mut state = Registry::default();
        state.register(
            "pm_cluster_reachable",
            "Whether the CRM of a cluster is reachable",
            reachable,
        );
        state.register("pm_deployments", "Deployments by condition", deployments);
        let mut text = String::new();
        // Writing into a String can't fail.
        let _ = encode_registry(&mut text, &self.registry);
        let _ = encode_registry(&mut text, &state);
        let _ = encode_eof(&mut text);
        text
    }
}

fn condition_label(condition: DeploymentCondition) -> String {
    let name = serde_json::to_value(condition).ok();
    name.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_scrapes_see_whole_values() {
        let metrics = Metrics::default();
        let cluster =
            |name: &str, health| Cluster { name: name.to_owned(), health, ..Cluster::default() };
        let clusters = [cluster("east", Health::Healthy), cluster("west", Health::Unreachable)];
        let conditions = BTreeMap::from([
            (DeploymentCondition::Running, 2),
            (DeploymentCondition::RollingBack, 1),
        ]);
        let lines = [
            "pm_cluster_reachable{cluster=\"east\"} 1\n",
            "pm_cluster_reachable{cluster=\"west\"} 0\n",
            "pm_deployments{condition=\"RUNNING\"} 2\n",
            "pm_deployments{condition=\"ROLLING_BACK\"} 1\n",
        ];
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let text = metrics.render(&clusters, conditions.clone());
                        assert!(lines.iter().all(|line| text.contains(line)), "{text}");
                        assert!(text.ends_with("# EOF\n"), "{text}");
                    }
                });
            }
        });
    }
}
