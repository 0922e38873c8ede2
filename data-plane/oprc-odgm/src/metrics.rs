//! Prometheus metrics. Their names are an API.

use std::time::{Duration, Instant};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Metric, Registry},
};

use crate::Error;

pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The label of methods that the class doesn't have: callers choose names.
const UNKNOWN_METHOD: &str = "unknown";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    method: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabels {
    method: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CollectionLabels {
    collection: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ForwardLabels {
    outcome: &'static str,
}

/// Values that are read for each scrape. None if they couldn't be read.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    pub(crate) turns: usize,
    pub(crate) events_pending: Option<u64>,
    pub(crate) oldest_event: Option<Duration>,
    pub(crate) events_parked: Option<u64>,
    /// By collection.
    pub(crate) objects: Vec<(String, u64)>,
    pub(crate) store: Option<StoreUsage>,
    pub(crate) owned_partitions: Option<u32>,
    pub(crate) is_leader: Option<bool>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreUsage {
    pub(crate) bytes: u64,
    pub(crate) bytes_in_use: u64,
    pub(crate) quota_bytes: u64,
}

pub(crate) struct Metrics {
    registry: Registry,
    calls: Family<CallLabels, Counter>,
    durations: Family<MethodLabels, Histogram, fn() -> Histogram>,
    pub(crate) conflicts: Counter,
    pub(crate) takeovers: Counter,
    forwards: Family<ForwardLabels, Counter>,
    turns: Gauge,
    events_pending: Gauge,
    oldest_event: Gauge<f64, std::sync::atomic::AtomicU64>,
    events_parked: Gauge,
    objects: Family<CollectionLabels, Gauge>,
    store_bytes: Gauge,
    store_bytes_in_use: Gauge,
    store_quota_bytes: Gauge,
    owned_partitions: Gauge,
    leader: Gauge,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Metrics")
    }
}

fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.5, 12))
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn add<M: Metric + Clone + Default>(all: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    all.register(name, help, metric.clone());
    metric
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("odgm");
        let all = &mut registry;
        let family = Family::<_, _, fn() -> _>::new_with_constructor(durations as fn() -> _);
        all.register("call_duration_seconds", "Time to execute a call", family.clone());
        let calls = add(all, "calls", "Calls that ended, by method and outcome");
        let conflicts = add(all, "conflicts", "Commits that failed because the object changed");
        let takeovers = add(all, "takeovers", "Partitions taken from owners that failed");
        let forwards = add(all, "forwards", "Calls forwarded to the owner of their object");
        let turns = add(all, "turns", "Calls that wait for their turn or have it");
        let events_pending = add(all, "outbox_events_pending", "Events of the grid to deliver");
        let help = "Time since the oldest event of this node could have been delivered";
        let oldest_event = add(all, "outbox_oldest_event_seconds", help);
        let events_parked = add(all, "outbox_events_parked", "Events that functions refuse");
        let objects = add(all, "objects", "Objects of the grid by collection");
        let store_bytes = add(all, "store_bytes", "Size of the file of the store");
        let store_bytes_in_use = add(all, "store_bytes_in_use", "Used bytes of the store");
        let store_quota_bytes = add(all, "store_quota_bytes", "Allowed bytes of the store");
        let owned_partitions = add(all, "owned_partitions", "Partitions that this node owns");
        let leader = add(all, "leader", "Whether this node leads the store");
        Self {
            registry,
            calls,
            durations: family,
            conflicts,
            takeovers,
            forwards,
            turns,
            events_pending,
            oldest_event,
            events_parked,
            objects,
            store_bytes,
            store_bytes_in_use,
            store_quota_bytes,
            owned_partitions,
            leader,
        }
    }
}

impl Metrics {
    /// `method` is none if the class doesn't have it.
    pub(crate) fn record_call<T>(
        &self,
        method: Option<&str>,
        began: Instant,
        result: &Result<T, Error>,
    ) {
        let method = method.unwrap_or(UNKNOWN_METHOD).to_owned();
        let duration = self.durations.get_or_create(&MethodLabels { method: method.clone() });
        duration.observe(began.elapsed().as_secs_f64());
        let outcome = outcome(result.as_ref().err());
        self.calls.get_or_create(&CallLabels { method, outcome }).inc();
    }

    pub(crate) fn record_forward(&self, outcome: &'static str) {
        self.forwards.get_or_create(&ForwardLabels { outcome }).inc();
    }

    /// The metrics in OpenMetrics text format.
    pub(crate) fn text(&self, observed: &Observed) -> String {
        self.turns.set(i64::try_from(observed.turns).unwrap_or(i64::MAX));
        if let Some(pending) = observed.events_pending {
            self.events_pending.set(number(pending));
        }
        self.oldest_event.set(observed.oldest_event.unwrap_or_default().as_secs_f64());
        if let Some(parked) = observed.events_parked {
            self.events_parked.set(number(parked));
        }
        for (collection, count) in &observed.objects {
            let labels = CollectionLabels { collection: collection.clone() };
            self.objects.get_or_create(&labels).set(number(*count));
        }
        if let Some(store) = observed.store {
            self.store_bytes.set(number(store.bytes));
            self.store_bytes_in_use.set(number(store.bytes_in_use));
            self.store_quota_bytes.set(number(store.quota_bytes));
        }
        self.owned_partitions.set(observed.owned_partitions.unwrap_or_default().into());
        self.leader.set(observed.is_leader.unwrap_or(true).into());
        let mut text = String::new();
        // Writing to a String can't fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// Few enough for a label.
fn outcome(error: Option<&Error>) -> &'static str {
    match error {
        None => "ok",
        Some(Error::Unavailable(_) | Error::NotOwner(_)) => "unavailable",
        Some(Error::UnknownOutcome(_)) => "unknown_outcome",
        Some(Error::Corrupt(_)) => "corrupt",
        Some(
            Error::FunctionFailed(_)
            | Error::FunctionTimeout(_)
            | Error::FunctionUnreachable(_)
            | Error::InvalidResponse(_),
        ) => "function_failed",
        Some(_) => "rejected",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_observed_values_are_shown() {
        let metrics = Metrics::default();
        metrics.record_call(Some("add"), Instant::now(), &Ok(()));
        metrics.record_call::<()>(None, Instant::now(), &Err(Error::Unavailable(String::new())));
        metrics.record_forward("unknown");
        metrics.takeovers.inc();
        let store = StoreUsage { bytes: 30, bytes_in_use: 20, quota_bytes: 100 };
        let text = metrics.text(&Observed {
            turns: 3,
            events_pending: Some(4),
            objects: vec![("carts".to_owned(), 5)],
            store: Some(store),
            is_leader: Some(false),
            ..Observed::default()
        });
        for line in [
            r#"odgm_calls_total{method="add",outcome="ok"} 1"#,
            r#"odgm_calls_total{method="unknown",outcome="unavailable"} 1"#,
            r#"odgm_call_duration_seconds_count{method="add"} 1"#,
            r#"odgm_forwards_total{outcome="unknown"} 1"#,
            "odgm_takeovers_total 1",
            "odgm_turns 3",
            "odgm_outbox_events_pending 4",
            r#"odgm_objects{collection="carts"} 5"#,
            "odgm_store_bytes_in_use 20",
            "odgm_store_quota_bytes 100",
            "odgm_leader 0",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}: {text}");
        }
    }
}
