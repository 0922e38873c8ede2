//! Prometheus metrics.

mod collector;
mod nfr;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::text::encode,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Metric, Registry},
};
use tonic::Code;

pub use self::nfr::NfrMetrics;
use self::{collector::ClassCollector, nfr::FunctionCollector};
use crate::{
    cache::{ApiHealth, Cache},
    crd::{ClassRuntimeStatus, Phase},
    leader::Leadership,
    observations::ObservationStore,
    reason::code_name,
    reconcile::ObservedClass,
};

/// Names and values of labels.
type Labels<const N: usize> = [(&'static str, String); N];
type Histograms<const N: usize> = Family<Labels<N>, Histogram, fn() -> Histogram>;

pub struct Metrics {
    registry: Registry,
    /// By environment, template and status.
    deployments: Family<Labels<3>, Counter>,
    /// By environment and template.
    durations: Histograms<2>,
    /// By environment and reason.
    failures: Family<Labels<2>, Counter>,
    /// When this process first saw each generation that isn't Available yet, by the uid of the
    /// class. A status doesn't say whether its generation was Available before.
    rollouts: Mutex<HashMap<String, Instant>>,
    /// By result.
    reconciliations: Histograms<1>,
    pub requeues: Counter,
    running: Gauge,
    waiting: Gauge,
    /// By method and code.
    calls: Family<Labels<2>, Counter>,
    pub nfr: NfrMetrics,
}

fn register<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

impl Metrics {
    pub fn new(
        api_health: &ApiHealth,
        cache: Arc<Cache>,
        leadership: Leadership,
        observations: Arc<ObservationStore>,
    ) -> Self {
        let mut registry = Registry::default();
        let all = &mut registry;
        let help = "State transitions of ClassRuntimes";
        let deployments = register(all, "crm_deployments", help, Family::default());
        let help = "Time from a new generation of a ClassRuntime until it is Available";
        let family = Histograms::new_with_constructor(|| buckets(0.25, 2.0, 13));
        let durations = register(all, "crm_deployment_duration_seconds", help, family);
        let help = "Failures of ClassRuntimes by reason";
        let failures = register(all, "crm_deployment_failures", help, Family::default());
        let help = "Time spent reconciling a ClassRuntime";
        let family = Histograms::new_with_constructor(|| buckets(0.001, 2.5, 12));
        let reconciliations = register(all, "crm_reconciliation_duration_seconds", help, family);
        let help = "Reconciliations that failed and are retried";
        let requeues = register(all, "crm_requeues", help, Counter::default());
        let help = "Reconciliations in progress";
        let running = register(all, "crm_reconciliations_running", help, Gauge::default());
        let help = "ClassRuntimes waiting to be reconciled, including delayed items";
        let waiting = register(all, "crm_queue_depth", help, Gauge::default());
        let calls = register(all, "crm_grpc_requests", "gRPC calls served", Family::default());
        let help = "Requests sent to the Kubernetes API server";
        register(all, "crm_api_requests", help, api_health.requests.clone());
        let nfr = NfrMetrics::new(all);
        let functions = FunctionCollector {
            cache: Arc::clone(&cache),
            observations,
            leadership: leadership.clone(),
        };
        registry.register_collector(Box::new(functions));
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
            nfr,
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
        let labels = [("result", result.to_owned())];
        self.reconciliations.get_or_create(&labels).observe(took.as_secs_f64());
    }

    pub fn count_call(&self, method: &str, code: Code) {
        self.calls.get_or_create(&by_call(method, code)).inc();
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
                    let reason = ("reason", status.reason.clone().unwrap_or_default());
                    self.failures.get_or_create(&[environment(class), reason]).inc();
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
        let [environment, template] = by_template(class, status);
        let labels = [environment, template, ("status", state.to_owned())];
        self.deployments.get_or_create(&labels).inc();
    }
}

fn buckets(start: f64, factor: f64, length: u16) -> Histogram {
    Histogram::new(exponential_buckets(start, factor, length))
}

fn by_call(method: &str, code: Code) -> Labels<2> {
    [("method", method.to_owned()), ("code", code_name(code))]
}

fn by_template(class: &ObservedClass, status: Option<&ClassRuntimeStatus>) -> Labels<2> {
    let selection = status.and_then(|status| status.selection.as_ref());
    let template = selection.map(|it| it.template.clone()).unwrap_or_default();
    [environment(class), ("template", template)]
}

/// The label `environment` of a class.
pub fn environment_of(class: &ObservedClass) -> String {
    let spec = class.spec.as_ref().ok();
    let name = spec.and_then(|spec| spec.target_environment.clone());
    name.unwrap_or_else(|| "default".to_owned())
}

fn environment(class: &ObservedClass) -> (&'static str, String) {
    ("environment", environment_of(class))
}

#[cfg(test)]
impl Metrics {
    /// `crm_grpc_requests_total` with this method and code.
    pub(crate) fn calls(&self, method: &str, code: Code) -> u64 {
        self.calls.get_or_create(&by_call(method, code)).get()
    }
}

#[cfg(test)]
mod tests;
