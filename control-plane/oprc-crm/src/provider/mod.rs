//! Access to a metrics store: queries over a range of time and at one instant.

mod answer;
mod body_reader;
mod breaker;
mod error;
mod prometheus;
mod series;
mod tls;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::jiff::Timestamp;

pub use self::{
    error::QueryError,
    prometheus::{PrometheusOptions, PrometheusProvider, url_problem},
    series::{Labels, MAX_VALUE, Point, Received, Series, SeriesSet, SeriesSink, known_value},
};

/// Bound on an answer. A longer one is an error, and is not read to its end. It isn't held in memory.
pub const MAX_BODY_BYTES: usize = 64 << 20;

/// A store of metrics. Prometheus and what is compatible with it (Thanos, Mimir, VictoriaMetrics) share
/// one implementation.
///
/// Scrape targets aren't part of it: ServiceMonitors and PodMonitors are children of a class, which
/// only the reconciler writes.
#[async_trait]
pub trait MetricsProvider: Send + Sync {
    /// Passes the values from `start` to `end`, both inclusive, at multiples of `step` after `start`, to
    /// the sink while they arrive. After an error what it has received counts for nothing.
    async fn query_range(
        &self,
        query: &RangeQuery,
        sink: Arc<dyn SeriesSink>,
    ) -> Result<Received, QueryError>;

    /// The values at one time: each series has at most one point.
    async fn query_instant(&self, promql: &str, at: Timestamp) -> Result<SeriesSet, QueryError>;

    /// Whether queries are answered and the credentials are accepted.
    async fn health_check(&self) -> Result<(), QueryError>;
}

#[derive(Clone, Debug, PartialEq)]
pub struct RangeQuery {
    pub promql: String,
    pub start: Timestamp,
    pub end: Timestamp,
    pub step: Duration,
}

#[cfg(test)]
pub(crate) mod tests;
