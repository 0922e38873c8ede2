//! Figures for Prometheus.

use std::{sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;
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

use crate::{
    cluster::Contact,
    crd::{ClassRuntimeStatus, Phase},
    reconcile::ObservedClass,
};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Deployed {
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
struct Failed {
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

/// Calls over gRPC.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct Call {
    /// The method.
    pub method: String,
    /// The code it ended with.
    pub code: String,
}

/// All figures.
pub struct Metrics {
    registry: Registry,
    deployments: Family<Deployed, Counter>,
    durations: Family<ByTemplate, Histogram, fn() -> Histogram>,
    failures: Family<Failed, Counter>,
    active: Family<ByEnvironment, Gauge>,
    templates: Family<ByTemplate, Gauge>,
    reconciliations: Family<ByResult, Histogram, fn() -> Histogram>,
    /// Classes that were put back to be tried again.
    pub requeues: Counter,
    /// Classes that are being looked at.
    pub running: Gauge,
    /// Classes that wait to be looked at, now or later.
    pub waiting: Gauge,
    /// Calls over gRPC.
    pub calls: Family<Call, Counter>,
    /// Whether this process leads.
    pub leading: Gauge,
}

fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.5, 12))
}

fn long_seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.25, 2.0, 13))
}

impl Metrics {
    /// All at nothing.
    pub fn new(contact: &Contact) -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            deployments: Family::default(),
            durations: Family::new_with_constructor(long_seconds),
            failures: Family::default(),
            active: Family::default(),
            templates: Family::default(),
            reconciliations: Family::new_with_constructor(seconds),
            requeues: Counter::default(),
            running: Gauge::default(),
            waiting: Gauge::default(),
            calls: Family::default(),
            leading: Gauge::default(),
        };
        let registry = &mut metrics.registry;
        registry.register(
            "crm_deployments",
            "Deployments by what became of them",
            metrics.deployments.clone(),
        );
        registry.register(
            "crm_deployment_duration_seconds",
            "From a new generation to Available",
            metrics.durations.clone(),
        );
        registry.register(
            "crm_deployment_failures",
            "Deployments that failed, by reason",
            metrics.failures.clone(),
        );
        registry.register(
            "crm_active_deployments",
            "Classes that there are",
            metrics.active.clone(),
        );
        registry.register("crm_template_usage", "Classes by template", metrics.templates.clone());
        registry.register(
            "crm_reconciliation_duration_seconds",
            "Looking at one class",
            metrics.reconciliations.clone(),
        );
        registry.register(
            "crm_requeues",
            "Classes that were put back to be tried again",
            metrics.requeues.clone(),
        );
        registry.register(
            "crm_reconciliations_running",
            "Classes that are being looked at",
            metrics.running.clone(),
        );
        registry.register(
            "crm_queue_depth",
            "Classes that wait to be looked at, now or later",
            metrics.waiting.clone(),
        );
        registry.register("crm_grpc_requests", "Calls over gRPC", metrics.calls.clone());
        registry.register(
            "crm_api_requests",
            "Requests to the API server",
            contact.requests.clone(),
        );
        registry.register("crm_leading", "Whether this process leads", metrics.leading.clone());
        metrics
    }

    /// All figures, in Prometheus' words.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a String can't fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    /// A class was looked at.
    pub fn reconciled(&self, result: &str, took: Duration) {
        let result = ByResult { result: result.to_owned() };
        self.reconciliations.get_or_create(&result).observe(took.as_secs_f64());
    }

    /// Counts the classes that there are. Whoever leads counts.
    pub fn count(&self, classes: &[Arc<ObservedClass>]) {
        self.active.clear();
        self.templates.clear();
        for class in classes.iter().filter(|class| class.deleting.is_none()) {
            let active = ByEnvironment { environment: environment(class) };
            self.active.get_or_create(&active).inc();
            let usage = usage(class, class.status.as_ref());
            self.templates.get_or_create(&usage).inc();
        }
    }

    /// A class was told how it is.
    pub fn told(&self, class: &ObservedClass, status: &ClassRuntimeStatus) {
        let before = class.status.as_ref();
        let same_generation =
            before.is_some_and(|before| before.observed_generation == status.observed_generation);
        let same_phase = before.is_some_and(|before| before.phase == status.phase);
        if same_generation && same_phase {
            return;
        }
        let ByTemplate { environment, template } = usage(class, Some(status));
        let deployed = |status: &str| Deployed {
            environment: environment.clone(),
            template: template.clone(),
            status: status.to_owned(),
        };
        match status.phase {
            Phase::Available => {
                self.deployments.get_or_create(&deployed("ACTIVE")).inc();
                let begun = before.and_then(|before| before.progress_since.as_ref());
                if let Some(begun) = begun {
                    let took = Timestamp::now().duration_since(begun.0);
                    let usage = usage(class, Some(status));
                    self.durations.get_or_create(&usage).observe(took.as_secs_f64());
                }
            }
            Phase::Degraded => {
                self.deployments.get_or_create(&deployed("FAILED")).inc();
                let reason = status.reason.clone().unwrap_or_default();
                self.failures.get_or_create(&Failed { environment, reason }).inc();
            }
            Phase::Pending | Phase::Applying | Phase::Progressing if !same_generation => {
                self.deployments.get_or_create(&deployed("PENDING")).inc();
            }
            Phase::Pending | Phase::Applying | Phase::Progressing | Phase::Deleting => {}
        }
    }
}

fn usage(class: &ObservedClass, status: Option<&ClassRuntimeStatus>) -> ByTemplate {
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
