//! Figures for Prometheus.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

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
    crd::Phase,
    reconcile::{Decision, ObservedClass},
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

/// What a class was when it was looked at last.
#[derive(Clone, PartialEq)]
struct Last {
    environment: String,
    template: String,
    phase: Phase,
    generation: i64,
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
    pub queue: Gauge,
    /// Calls over gRPC.
    pub calls: Family<Call, Counter>,
    /// Whether this process leads.
    pub leading: Gauge,
    last: Mutex<HashMap<String, Last>>,
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
            queue: Gauge::default(),
            calls: Family::default(),
            leading: Gauge::default(),
            last: Mutex::default(),
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
            metrics.queue.clone(),
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

    fn failed(&self, class: &ObservedClass, reason: &str) {
        let failed = Failed { environment: environment(class), reason: reason.to_owned() };
        self.failures.get_or_create(&failed).inc();
    }

    /// Forgets all classes.
    pub fn forget(&self) {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.active.clear();
        self.templates.clear();
    }

    /// It was decided what a class is.
    pub fn decided(&self, class: &ObservedClass, decision: &Decision) {
        let environment = environment(class);
        let now = Last {
            environment: environment.clone(),
            template: decision.template.map_or_else(String::new, |it| it.as_str().to_owned()),
            phase: decision.phase,
            generation: class.generation,
        };
        let mut all = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let going = decision.phase == Phase::Deleting;
        let before =
            if going { all.remove(&class.uid) } else { all.insert(class.uid.clone(), now.clone()) };
        let active = ByEnvironment { environment };
        match (&before, going) {
            (None, false) => {
                self.active.get_or_create(&active).inc();
            }
            (Some(_), true) => {
                self.active.get_or_create(&active).dec();
            }
            _ => {}
        }
        if let Some(before) = &before {
            self.templates.get_or_create(&usage(before)).dec();
        }
        if !going {
            self.templates.get_or_create(&usage(&now)).inc();
        }
        if before.as_ref() == Some(&now) || going {
            return;
        }
        let deployed = |status: &str| Deployed {
            environment: now.environment.clone(),
            template: now.template.clone(),
            status: status.to_owned(),
        };
        if before
            .as_ref()
            .is_some_and(|before| before.phase == now.phase && before.generation == now.generation)
        {
            return;
        }
        match now.phase {
            Phase::Available => {
                self.deployments.get_or_create(&deployed("ACTIVE")).inc();
                let begun = class.status.as_ref().and_then(|status| status.progress_since.as_ref());
                if let Some(begun) = begun {
                    let took = k8s_openapi::jiff::Timestamp::now().duration_since(begun.0);
                    self.durations.get_or_create(&usage(&now)).observe(took.as_secs_f64());
                }
            }
            Phase::Degraded => {
                self.deployments.get_or_create(&deployed("FAILED")).inc();
                let status = decision.actions.iter().find_map(|action| match action {
                    crate::reconcile::Action::Status(status) => status.reason.clone(),
                    _ => None,
                });
                if let Some(reason) = status {
                    self.failed(class, &reason);
                }
            }
            Phase::Pending | Phase::Applying | Phase::Progressing | Phase::Deleting => {
                if before.is_none_or(|before| before.generation != now.generation) {
                    self.deployments.get_or_create(&deployed("PENDING")).inc();
                }
            }
        }
    }
}

fn usage(last: &Last) -> ByTemplate {
    ByTemplate { environment: last.environment.clone(), template: last.template.clone() }
}

fn environment(class: &ObservedClass) -> String {
    let spec = class.spec.as_ref().ok();
    spec.and_then(|spec| spec.target_environment.clone()).unwrap_or_else(|| "default".to_owned())
}
