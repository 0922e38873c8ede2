//! Prometheus metrics: number and duration of requests, CPU time and memory of the process.

use std::{fmt, fs, time::Duration};

use axum::http::{Method, StatusCode};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text::encode},
    metrics::{counter::ConstCounter, family::Family, gauge::ConstGauge, histogram::Histogram},
    registry::{Registry, Unit},
};
use rustix::{
    param::page_size,
    time::{ClockId, clock_gettime},
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
        registry.register_collector(Box::new(Process));
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

/// What the process uses, under the names that client libraries use.
#[derive(Debug)]
struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let time: Duration = clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap_or_default();
        let mut add = |name: &str, help: &str, unit: Unit, metric: &dyn EncodeMetric| {
            metric.encode(encoder.encode_descriptor(
                name,
                help,
                Some(&unit),
                metric.metric_type(),
            )?)
        };
        let time = ConstCounter::new(time.as_secs_f64());
        add("process_cpu", "CPU time of the process", Unit::Seconds, &time)?;
        match resident_bytes() {
            Some(bytes) => {
                let help = "Memory of the process";
                add("process_resident_memory", help, Unit::Bytes, &ConstGauge::new(bytes))
            }
            None => Ok(()),
        }
    }
}

fn resident_bytes() -> Option<u64> {
    let pages = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split(' ').nth(1)?.parse().ok()?;
    Some(pages * u64::try_from(page_size()).ok()?)
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

    #[test]
    fn reports_cpu_time_and_memory() {
        let text = Metrics::default().text();
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("{text}")).trim().parse().unwrap()
        };
        assert!(value("process_cpu_seconds_total ") > 0.0, "{text}");
        assert!(value("process_resident_memory_bytes ") > 1e5, "{text}");
    }
}
