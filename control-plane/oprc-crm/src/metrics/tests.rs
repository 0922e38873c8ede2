use k8s_openapi::jiff::Timestamp;
use oprc_unit::SelectionStatus;
use serde_json::json;

use super::*;
use crate::{decode::decode, reason::Reason};

fn class(name: &str, phase: Option<&str>) -> ObservedClass {
    let status = phase.map(|phase| {
        let selection =
            json!({"template": "knative", "profile": "dev", "generation": 1, "basis": ""});
        json!({"phase": phase, "selection": selection})
    });
    let raw = json!({
        "metadata": {
            "name": name, "namespace": "n", "uid": name, "resourceVersion": "1", "generation": 1,
        },
        "spec": {"target_environment": "prod"},
        "status": status,
    });
    decode(&serde_json::from_value(raw).unwrap())
}

/// The value of one sample in a scrape.
fn sample(text: &str, name: &str) -> Option<f64> {
    let mut values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = values.next().map(|value| value.parse().unwrap());
    assert_eq!(values.next(), None, "{name} twice in {text}");
    value
}

fn metrics(cache: Arc<Cache>, leadership: Leadership) -> Metrics {
    Metrics::new(&ApiHealth::default(), cache, leadership, Arc::default())
}

/// One class and the statuses that are written to it.
struct Rollout {
    metrics: Metrics,
    class: ObservedClass,
}

impl Rollout {
    fn new() -> Self {
        let metrics = metrics(Arc::default(), Leadership::always());
        Self { metrics, class: class("shop", None) }
    }

    fn write_status(&mut self, generation: i64, change: impl FnOnce(&mut ClassRuntimeStatus)) {
        let mut status = self.class.status.clone().unwrap_or_default();
        status.observed_generation = Some(generation);
        let template = "knative".to_owned();
        status.selection = Some(SelectionStatus { template, ..SelectionStatus::default() });
        change(&mut status);
        self.metrics.on_status_written(&self.class, &status);
        self.class.status = Some(status);
    }

    fn progressing(&mut self, generation: i64) {
        self.write_status(generation, |it| {
            let (phase, reason) = (Phase::Progressing, Reason::Progressing);
            it.mark_in_progress(phase, reason, "", Some(""), Timestamp::UNIX_EPOCH);
        });
    }

    fn available(&mut self, generation: i64) {
        self.write_status(generation, |it| it.mark_available(Timestamp::UNIX_EPOCH));
    }

    fn degraded(&mut self, generation: i64, reason: &str) {
        let reason = Reason::parse(reason).unwrap();
        self.write_status(generation, |it| {
            it.mark_degraded(reason, "", false, Timestamp::UNIX_EPOCH);
        });
    }

    fn deleting(&mut self, generation: i64, message: &str) {
        self.write_status(generation, |it| it.mark_deleting(message, Timestamp::UNIX_EPOCH));
    }

    /// `crm_deployments_total` with this status.
    fn deployments(&self, status: &str) -> u64 {
        let labels = [("environment", "prod"), ("template", "knative"), ("status", status)];
        let labels = labels.map(|(name, value)| (name, value.to_owned()));
        self.metrics.deployments.get_or_create(&labels).get()
    }

    /// `crm_deployment_failures_total` with this reason.
    fn failures(&self, reason: &str) -> u64 {
        let labels = [("environment", "prod".to_owned()), ("reason", reason.to_owned())];
        self.metrics.failures.get_or_create(&labels).get()
    }

    /// How many rollouts were measured.
    fn durations(&self) -> f64 {
        let labels = r#"{environment="prod",template="knative"}"#;
        let name = format!("crm_deployment_duration_seconds_count{labels}");
        sample(&self.metrics.text(), &name).unwrap_or_default()
    }

    #[track_caller]
    fn assert_durations(&self, expected: f64) {
        assert!((self.durations() - expected).abs() < f64::EPSILON, "{}", self.durations());
    }
}

#[test]
fn measures_rollouts_and_not_recoveries() {
    let mut rollout = Rollout::new();
    rollout.progressing(1);
    rollout.available(1);
    assert_eq!((rollout.deployments("PENDING"), rollout.deployments("ACTIVE")), (1, 1));
    rollout.assert_durations(1.0);
    rollout.progressing(1);
    rollout.available(1);
    assert_eq!((rollout.deployments("PENDING"), rollout.deployments("ACTIVE")), (1, 2));
    rollout.assert_durations(1.0);
    rollout.degraded(1, "CrashLoop");
    rollout.available(1);
    assert_eq!(rollout.deployments("ACTIVE"), 3);
    rollout.assert_durations(1.0);
    // A rollout that fails first is measured, and so is one that is Available at once.
    rollout.degraded(2, "ImagePullFailed");
    rollout.available(2);
    rollout.available(3);
    assert_eq!(rollout.deployments("ACTIVE"), 5);
    rollout.assert_durations(3.0);
}

#[test]
fn does_not_measure_rollouts_that_another_leader_started() {
    let mut rollout = Rollout::new();
    rollout.progressing(1);
    rollout.metrics.on_leadership_acquired();
    rollout.available(1);
    assert_eq!(rollout.deployments("ACTIVE"), 1);
    rollout.assert_durations(0.0);
}

#[test]
fn counts_each_reason_as_one_failure() {
    let mut rollout = Rollout::new();
    rollout.progressing(1);
    rollout.degraded(1, "ImagePullFailed");
    rollout.degraded(1, "ImagePullFailed");
    rollout.degraded(1, "CrashLoop");
    assert_eq!((rollout.failures("ImagePullFailed"), rollout.failures("CrashLoop")), (1, 1));
    assert_eq!(rollout.deployments("FAILED"), 1, "it had failed before");
    rollout.degraded(2, "CrashLoop");
    assert_eq!((rollout.failures("CrashLoop"), rollout.deployments("FAILED")), (2, 2));
}

#[test]
fn counts_a_deletion_once() {
    let mut rollout = Rollout::new();
    rollout.available(1);
    rollout.deleting(2, "");
    rollout.deleting(3, "waiting for children");
    rollout.metrics.on_deleted(&rollout.class);
    assert_eq!(rollout.deployments("DELETED"), 1);

    // A class without children is deleted without a status of its own.
    let mut rollout = Rollout::new();
    rollout.degraded(1, "InvalidSpec");
    rollout.metrics.on_deleted(&rollout.class);
    assert_eq!(rollout.deployments("DELETED"), 1);
}

#[test]
fn active_deployments_are_those_that_are_available() {
    let cache = Arc::new(Cache::default());
    for (name, phase) in [
        ("a", Some("Available")),
        ("b", Some("Available")),
        ("c", Some("Progressing")),
        ("d", Some("Degraded")),
        ("e", None),
    ] {
        cache.put_class(class(name, phase));
    }
    let text = metrics(cache, Leadership::always()).text();
    let count = |name: &str| sample(&text, name);
    assert_eq!(count(r#"crm_active_deployments{environment="prod"}"#), Some(2.0), "{text}");
    let usage = r#"crm_template_usage{environment="prod",template="knative"}"#;
    assert_eq!((count(usage), count("crm_leading")), (Some(4.0), Some(1.0)), "{text}");
}

#[test]
fn concurrent_scrapes_see_the_same_values() {
    let cache = Arc::new(Cache::default());
    for at in 0..50 {
        cache.put_class(class(&format!("class-{at}"), Some("Available")));
    }
    let metrics = metrics(cache, Leadership::always());
    let name = r#"crm_active_deployments{environment="prod"}"#;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert_eq!(sample(&metrics.text(), name), Some(50.0));
                }
            });
        }
    });
}

#[test]
fn only_the_leader_counts_classes() {
    let cache = Arc::new(Cache::default());
    cache.put_class(class("a", Some("Available")));
    let text = metrics(cache, Leadership::never()).text();
    assert_eq!(sample(&text, "crm_leading"), Some(0.0));
    assert!(!text.contains("crm_active_deployments{"), "{text}");
}
