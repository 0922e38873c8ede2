//! Prometheus metrics: number and duration of requests.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{family::Family, histogram::Histogram},
    registry::Registry,
};

const BUCKETS: [f64; 13] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    method: String,
    status: u16,
}

pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Labels, Histogram>,
}

impl Default for Metrics {
    fn default() -> Self {
        let requests =
            Family::<Labels, Histogram>::new_with_constructor(|| Histogram::new(BUCKETS));
        let mut registry = Registry::default();
        let help = "Duration of invocations";
        registry.register("http_server_requests_seconds", help, requests.clone());
        Self { registry, requests }
    }
}

impl Metrics {
    pub(crate) fn observe(&self, method: &Method, status: StatusCode, took: Duration) {
        // Bounds the number of series: clients may send any method.
        let known = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
        let method = if known.contains(method) { method.as_str() } else { "other" };
        let labels = Labels { method: method.to_owned(), status: status.as_u16() };
        self.requests.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// In the OpenMetrics text format.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string can't fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_a_histogram_by_method_and_status() {
        let metrics = Metrics::default();
        metrics.observe(&Method::GET, StatusCode::OK, Duration::from_millis(3));
        metrics.observe(&Method::TRACE, StatusCode::OK, Duration::from_millis(3));
        let text = metrics.text();
        assert!(
            text.contains(
                r#"http_server_requests_seconds_bucket{le="0.005",method="GET",status="200"} 1"#
            ),
            "{text}"
        );
        assert!(text.contains(r#"method="other""#), "{text}");
    }
}
