//! Prometheus metrics. The crate documentation lists them; their names are an API.

use std::{
    sync::atomic::AtomicU64,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use crate::config::Config;

pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const QUEUE_WAIT_BUCKETS: [f64; 9] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

/// How a call ended. Each call has exactly one outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The function answered with a status below 400.
    Ok,
    /// The function answered with 4xx, or with a gRPC status that blames the client.
    ClientError,
    /// The function answered with 5xx or a gRPC server error, or broke off its response.
    ServerError,
    Timeout,
    /// The queue was full or the breaker open.
    Rejected,
    /// The function refused or lost the connection before it answered.
    Unreachable,
    /// The client went away.
    Canceled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RejectReason {
    QueueFull,
    Breaker,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// Counters by outcome, looked up once.
struct OutcomeCounters {
    ok: Counter,
    client_error: Counter,
    server_error: Counter,
    timeout: Counter,
    rejected: Counter,
    unreachable: Counter,
    canceled: Counter,
}

pub(crate) struct Metrics {
    registry: Registry,
    outcomes: OutcomeCounters,
    rejected_queue_full: Counter,
    rejected_breaker: Counter,
    duration: Histogram,
    queue_wait: Histogram,
    hard_latency_breaches: Counter,
    in_flight: Gauge,
    queue_length: Gauge,
}

impl Metrics {
    pub(crate) fn new(config: &Config) -> Self {
        let requests = Family::<OutcomeLabels, Counter>::default();
        let rejected = Family::<ReasonLabels, Counter>::default();
        let outcome = |outcome| requests.get_or_create_owned(&OutcomeLabels { outcome });
        let reason = |reason| rejected.get_or_create_owned(&ReasonLabels { reason });
        let bounds = config.latency.into_iter().chain(config.hard_latency);
        let mut metrics = Self {
            registry: Registry::with_prefix("oprc_proxy"),
            outcomes: OutcomeCounters {
                ok: outcome("ok"),
                client_error: outcome("client_error"),
                server_error: outcome("server_error"),
                timeout: outcome("timeout"),
                rejected: outcome("rejected"),
                unreachable: outcome("unreachable"),
                canceled: outcome("canceled"),
            },
            rejected_queue_full: reason("queue_full"),
            rejected_breaker: reason("breaker"),
            duration: Histogram::new(duration_buckets(bounds)),
            queue_wait: Histogram::new(QUEUE_WAIT_BUCKETS),
            hard_latency_breaches: Counter::default(),
            in_flight: Gauge::default(),
            queue_length: Gauge::default(),
        };
        metrics.registry.register("requests", "Calls that ended, by outcome", requests);
        let help = "Calls that the proxy rejected, by reason";
        metrics.registry.register("rejected", help, rejected);
        metrics.register_calls();
        metrics.register_settings(config);
        metrics
    }

    fn register_calls(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "request_duration_seconds",
            "Time from the receipt of a call to the end of its response, for calls that reached the \
             function; includes the time in the queue",
            self.duration.clone(),
        );
        registry.register(
            "queue_wait_seconds",
            "Time that calls waited in the queue; calls that did not wait are not counted",
            self.queue_wait.clone(),
        );
        registry.register(
            "hard_latency_breaches",
            "Calls that took longer than the hard latency or timed out; 0 without a hard latency",
            self.hard_latency_breaches.clone(),
        );
        let help = "Calls that the function is processing";
        registry.register("requests_in_flight", help, self.in_flight.clone());
        let help = "Calls that wait until the function has a free slot";
        registry.register("queue_length", help, self.queue_length.clone());
    }

    fn register_settings(&mut self, config: &Config) {
        if let Some(max_concurrency) = config.max_concurrency {
            let gauge = Gauge::<i64>::default();
            gauge.set(clamp(max_concurrency));
            let help = "Maximum number of concurrent calls in the function";
            self.registry.register("max_concurrency", help, gauge);
        }
        let started = Gauge::<f64, AtomicU64>::default();
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        started.set(since_epoch.as_secs_f64());
        let help = "Start time of the proxy since the Unix epoch";
        self.registry.register("start_time_seconds", help, started);
    }

    pub(crate) fn count(&self, outcome: Outcome) {
        let counters = &self.outcomes;
        let counter = match outcome {
            Outcome::Ok => &counters.ok,
            Outcome::ClientError => &counters.client_error,
            Outcome::ServerError => &counters.server_error,
            Outcome::Timeout => &counters.timeout,
            Outcome::Rejected => &counters.rejected,
            Outcome::Unreachable => &counters.unreachable,
            Outcome::Canceled => &counters.canceled,
        };
        counter.inc();
    }

    pub(crate) fn count_rejected(&self, reason: RejectReason) {
        match reason {
            RejectReason::QueueFull => self.rejected_queue_full.inc(),
            RejectReason::Breaker => self.rejected_breaker.inc(),
        };
    }

    pub(crate) fn count_hard_latency_breach(&self) {
        self.hard_latency_breaches.inc();
    }

    pub(crate) fn observe_duration(&self, elapsed: Duration) {
        self.duration.observe(elapsed.as_secs_f64());
    }

    pub(crate) fn observe_queue_wait(&self, waited: Duration) {
        self.queue_wait.observe(waited.as_secs_f64());
    }

    /// In the OpenMetrics text format.
    pub(crate) fn text(&self, in_flight: usize, queued: usize) -> String {
        self.in_flight.set(clamp(in_flight));
        self.queue_length.set(clamp(queued));
        let mut text = String::new();
        // Writing to a string can't fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

fn clamp(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Bounds from 1 ms to about 100 s that grow by 25 %, rounded to microseconds, and the given bounds.
fn duration_buckets(extra: impl Iterator<Item = Duration>) -> Vec<f64> {
    let microseconds = std::iter::successors(Some(1000.0_f64), |bound| Some(bound * 1.25));
    let mut bounds: Vec<_> = microseconds
        .take_while(|bound| *bound < 1.1e8)
        .map(|bound| bound.round() / 1e6)
        .chain(extra.map(|bound| bound.as_secs_f64()))
        .collect();
    bounds.sort_by(f64::total_cmp);
    bounds.dedup();
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_contain_the_required_latencies_exactly() {
        let extra = [Duration::from_millis(250), Duration::from_millis(1)];
        let buckets = duration_buckets(extra.into_iter());
        assert!(buckets.contains(&0.25));
        assert_eq!(buckets.iter().filter(|bound| **bound < 0.0011).count(), 1);
        assert!(buckets.is_sorted());
        assert!(buckets.len() < 60, "{}", buckets.len());
        assert!(*buckets.last().unwrap() > 80.0);
    }

    #[test]
    fn all_series_exist_from_the_start() {
        let mut config = Config::new(8080);
        config.max_concurrency = Some(7);
        let text = Metrics::new(&config).text(2, 3);
        for line in [
            r#"oprc_proxy_requests_total{outcome="ok"} 0"#,
            r#"oprc_proxy_requests_total{outcome="client_error"} 0"#,
            r#"oprc_proxy_requests_total{outcome="server_error"} 0"#,
            r#"oprc_proxy_requests_total{outcome="timeout"} 0"#,
            r#"oprc_proxy_requests_total{outcome="rejected"} 0"#,
            r#"oprc_proxy_requests_total{outcome="unreachable"} 0"#,
            r#"oprc_proxy_requests_total{outcome="canceled"} 0"#,
            r#"oprc_proxy_rejected_total{reason="queue_full"} 0"#,
            r#"oprc_proxy_rejected_total{reason="breaker"} 0"#,
            "oprc_proxy_hard_latency_breaches_total 0",
            "oprc_proxy_request_duration_seconds_count 0",
            "oprc_proxy_queue_wait_seconds_count 0",
            "oprc_proxy_requests_in_flight 2",
            "oprc_proxy_queue_length 3",
            "oprc_proxy_max_concurrency 7",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in {text}");
        }
        assert!(text.contains("oprc_proxy_start_time_seconds "));
        let unlimited = Metrics::new(&Config::new(8080)).text(0, 0);
        assert!(!unlimited.contains("max_concurrency"));
    }
}
