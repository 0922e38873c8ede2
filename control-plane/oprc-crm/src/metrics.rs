//! Prometheus metrics.

mod collector;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
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

use self::collector::ClassCollector;
use crate::{
    cache::{ApiHealth, Cache},
    crd::{ClassRuntimeStatus, Phase},
    leader::Leadership,
    reconcile::ObservedClass,
};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByStatus {
    environment: String,
    template: String,
    status: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByTemplate {
    environment: String,
    template: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByReason {
    environment: String,
    reason: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByEnvironment {
    environment: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByResult {
    result: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct Call {
    pub method: String,
    pub code: String,
}

pub struct Metrics {
    registry: Registry,
    deployments: Family<ByStatus, Counter>,
    durations: Family<ByTemplate, Histogram, fn() -> Histogram>,
    failures: Family<ByReason, Counter>,
    /// When this process first saw each generation that isn't Available yet, by the uid of the
    /// class. A status doesn't say whether its generation was Available before.
    rollouts: Mutex<HashMap<String, Instant>>,
    reconciliations: Family<ByResult, Histogram, fn() -> Histogram>,
    pub requeues: Counter,
    running: Gauge,
    waiting: Gauge,
    pub calls: Family<Call, Counter>,
}

fn reconcile_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.5, 12))
}

fn rollout_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.25, 2.0, 13))
}

fn register<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

impl Metrics {
    pub fn new(api_health: &ApiHealth, cache: Arc<Cache>, leadership: Leadership) -> Self {
        let mut registry = Registry::default();
        let all = &mut registry;
        let help = "Deployments by the state that they reached";
        let deployments = register(all, "crm_deployments", help, Family::default());
        let help = "Time from a new generation to Available";
        let family: Family<_, _, fn() -> Histogram> = Family::new_with_constructor(rollout_buckets);
        let durations = register(all, "crm_deployment_duration_seconds", help, family);
        let help = "Failed deployments by reason";
        let failures = register(all, "crm_deployment_failures", help, Family::default());
        let help = "Time spent reconciling a ClassRuntime";
        let family: Family<_, _, fn() -> Histogram> =
            Family::new_with_constructor(reconcile_buckets);
        let reconciliations = register(all, "crm_reconciliation_duration_seconds", help, family);
        let help = "Reconciliations that failed and were requeued";
        let requeues = register(all, "crm_requeues", help, Counter::default());
        let help = "Reconciliations in progress";
        let running = register(all, "crm_reconciliations_running", help, Gauge::default());
        let help = "ClassRuntimes waiting to be reconciled, now or later";
        let waiting = register(all, "crm_queue_depth", help, Gauge::default());
        let calls = register(all, "crm_grpc_requests", "gRPC calls served", Family::default());
        let help = "Requests sent to the Kubernetes API server";
        register(all, "crm_api_requests", help, api_health.requests.clone());
        registry.register_collector(Box::new(ClassCollector { cache, leadership }));
        Self {
            registry,
            deployments,
            durations,
            failures,
            rollouts: Mutex::default(),
            reconciliations,
            requeues,
            running,
            waiting,
            calls,
        }
    }

    /// The metrics in OpenMetrics text format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String can't fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    pub fn reconciled(&self, result: &str, took: Duration) {
        let result = ByResult { result: result.to_owned() };
        self.reconciliations.get_or_create(&result).observe(took.as_secs_f64());
    }

    pub fn set_queue(&self, waiting: usize, running: usize) {
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.waiting.set(gauge(waiting));
        self.running.set(gauge(running));
    }

    /// When rollouts started under another leader is unknown.
    pub fn on_leadership_acquired(&self) {
        self.rollouts.lock().clear();
    }

    /// `class` is the class before its status was written.
    pub fn on_status_written(&self, class: &ObservedClass, status: &ClassRuntimeStatus) {
        if status.phase == Phase::Deleting {
            self.on_deleted(class);
            return;
        }
        let before = class.status.as_ref();
        let same_generation =
            before.is_some_and(|before| before.observed_generation == status.observed_generation);
        let same_phase = before.is_some_and(|before| before.phase == status.phase);
        let same_reason = before.is_some_and(|before| before.reason == status.reason);
        if !same_generation {
            self.rollouts.lock().insert(class.uid.clone(), Instant::now());
        }
        let transition = |state| {
            if !(same_generation && same_phase) {
                self.count_deployment(class, Some(status), state);
            }
        };
        match status.phase {
            Phase::Available => {
                transition("ACTIVE");
                // A recovery without a new generation is not a rollout.
                if let Some(started) = self.rollouts.lock().remove(&class.uid) {
                    let took = started.elapsed().as_secs_f64();
                    self.durations.get_or_create(&by_template(class, Some(status))).observe(took);
                }
            }
            Phase::Degraded => {
                transition("FAILED");
                if !(same_generation && same_phase && same_reason) {
                    let environment = environment(class);
                    let reason = status.reason.clone().unwrap_or_default();
                    self.failures.get_or_create(&ByReason { environment, reason }).inc();
                }
            }
            Phase::Pending | Phase::Applying | Phase::Progressing if !same_generation => {
                transition("PENDING");
            }
            Phase::Pending | Phase::Applying | Phase::Progressing | Phase::Deleting => {}
        }
    }

    /// Counts a deletion once, whether its status was written first or not.
    pub fn on_deleted(&self, class: &ObservedClass) {
        let before = class.status.as_ref();
        if before.is_none_or(|before| before.phase != Phase::Deleting) {
            self.count_deployment(class, before, "DELETED");
            self.rollouts.lock().remove(&class.uid);
        }
    }

    fn count_deployment(
        &self,
        class: &ObservedClass,
        status: Option<&ClassRuntimeStatus>,
        state: &str,
    ) {
        let ByTemplate { environment, template } = by_template(class, status);
        let labels = ByStatus { environment, template, status: state.to_owned() };
        self.deployments.get_or_create(&labels).inc();
    }
}

fn by_template(class: &ObservedClass, status: Option<&ClassRuntimeStatus>) -> ByTemplate {
    let selection = status.and_then(|status| status.selection.as_ref());
    ByTemplate {
        environment: environment(class),
        template: selection.map_or_else(String::new, |it| it.template.clone()),
    }
}

fn environment(class: &ObservedClass) -> String {
    let spec = class.spec.as_ref().ok();
    spec.and_then(|spec| spec.target_environment.clone()).unwrap_or_else(|| "default".to_owned())
}

#[cfg(test)]
mod tests;
