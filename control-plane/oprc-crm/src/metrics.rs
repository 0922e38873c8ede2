//! Figures for Prometheus.

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
    /// When this process has first told of changes that aren't Available yet, by the identity of
    /// the class. A status doesn't say whether its generation was Available before.
    changes: Mutex<HashMap<String, Instant>>,
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
            changes: Mutex::default(),
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

    /// This process begins to lead: what became of changes while somebody else led isn't known.
    pub fn leads(&self) {
        self.changes().clear();
    }

    /// A class was told how it is.
    pub fn told(&self, class: &ObservedClass, status: &ClassRuntimeStatus) {
        let before = class.status.as_ref();
        let same_generation =
            before.is_some_and(|before| before.observed_generation == status.observed_generation);
        let same_phase = before.is_some_and(|before| before.phase == status.phase);
        let same_reason = before.is_some_and(|before| before.reason == status.reason);
        if status.phase == Phase::Deleting {
            self.goes(class);
            return;
        }
        if !same_generation {
            self.changes().insert(class.uid.clone(), Instant::now());
        }
        let became = |what| {
            if !(same_generation && same_phase) {
                self.deployed(class, Some(status), what);
            }
        };
        match status.phase {
            Phase::Available => {
                became("ACTIVE");
                // What recovers without a change was deployed long ago.
                if let Some(begun) = self.changes().remove(&class.uid) {
                    let took = begun.elapsed().as_secs_f64();
                    self.durations.get_or_create(&usage(class, Some(status))).observe(took);
                }
            }
            Phase::Degraded => {
                became("FAILED");
                if !(same_generation && same_phase && same_reason) {
                    let environment = environment(class);
                    let reason = status.reason.clone().unwrap_or_default();
                    self.failures.get_or_create(&Failed { environment, reason }).inc();
                }
            }
            Phase::Pending | Phase::Applying | Phase::Progressing if !same_generation => {
                became("PENDING");
            }
            Phase::Pending | Phase::Applying | Phase::Progressing | Phase::Deleting => {}
        }
    }

    /// A class is told that it goes, or is let go at once. It is counted the first time.
    pub fn goes(&self, class: &ObservedClass) {
        let before = class.status.as_ref();
        if before.is_none_or(|before| before.phase != Phase::Deleting) {
            self.deployed(class, before, "DELETED");
            self.changes().remove(&class.uid);
        }
    }

    fn deployed(&self, class: &ObservedClass, status: Option<&ClassRuntimeStatus>, what: &str) {
        let ByTemplate { environment, template } = usage(class, status);
        let deployed = Deployed { environment, template, status: what.to_owned() };
        self.deployments.get_or_create(&deployed).inc();
    }

    fn changes(&self) -> parking_lot::MutexGuard<'_, HashMap<String, Instant>> {
        self.changes.lock()
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

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use oprc_unit::{SelectionStatus, UnitSpec};

    /// A class whose statuses are told one after another.
    struct Told {
        metrics: Metrics,
        class: ObservedClass,
    }

    impl Told {
        fn nothing() -> Self {
            let class = ObservedClass {
                name: "shop".to_owned(),
                namespace: "default".to_owned(),
                uid: "u-1".to_owned(),
                resource_version: "1".to_owned(),
                generation: 1,
                deleting: None,
                created: None,
                finalizers: Vec::new(),
                labels: std::collections::BTreeMap::default(),
                deployment_id: None,
                correlation_id: None,
                spec: Ok(UnitSpec {
                    target_environment: Some("prod".to_owned()),
                    ..UnitSpec::default()
                }),
                status: None,
            };
            Self { metrics: Metrics::new(&Contact::default()), class }
        }

        /// Tells that it is so now.
        fn tell(&mut self, generation: i64, enter: impl FnOnce(&mut ClassRuntimeStatus)) {
            let mut status = self.class.status.clone().unwrap_or_default();
            status.observed_generation = Some(generation);
            let template = "knative".to_owned();
            status.selection = Some(SelectionStatus { template, ..SelectionStatus::default() });
            enter(&mut status);
            self.metrics.told(&self.class, &status);
            self.class.status = Some(status);
        }

        fn progress(&mut self, generation: i64) {
            self.tell(generation, |it| it.progress("", "", Timestamp::UNIX_EPOCH));
        }

        fn available(&mut self, generation: i64) {
            self.tell(generation, |it| it.become_available(Timestamp::UNIX_EPOCH));
        }

        fn fail(&mut self, generation: i64, reason: &str) {
            self.tell(generation, |it| it.fail(reason, "", Timestamp::UNIX_EPOCH));
        }

        /// How often it became so.
        fn became(&self, status: &str) -> u64 {
            let (environment, template) = ("prod".to_owned(), "knative".to_owned());
            let deployed = Deployed { environment, template, status: status.to_owned() };
            self.metrics.deployments.get_or_create(&deployed).get()
        }

        fn failed(&self, reason: &str) -> u64 {
            let failed = Failed { environment: "prod".to_owned(), reason: reason.to_owned() };
            self.metrics.failures.get_or_create(&failed).get()
        }

        /// How many deployments were timed.
        fn timed(&self) -> usize {
            let labels = r#"{environment="prod",template="knative"}"#;
            let begin = format!("crm_deployment_duration_seconds_count{labels} ");
            let text = self.metrics.text();
            let line = text.lines().find_map(|line| line.strip_prefix(&begin));
            line.map_or(0, |count| count.parse().unwrap())
        }
    }

    #[test]
    fn a_change_is_timed_and_a_recovery_is_not() {
        let mut told = Told::nothing();
        told.progress(1);
        told.available(1);
        assert_eq!((told.became("PENDING"), told.became("ACTIVE"), told.timed()), (1, 1, 1));
        told.progress(1);
        told.available(1);
        assert_eq!((told.became("PENDING"), told.became("ACTIVE"), told.timed()), (1, 2, 1));
        told.fail(1, "CrashLoop");
        told.available(1);
        assert_eq!((told.became("ACTIVE"), told.timed()), (3, 1));
        // What fails at first took its time all the same, and what is there at once took none.
        told.fail(2, "ImagePullFailed");
        told.available(2);
        told.available(3);
        assert_eq!((told.became("ACTIVE"), told.timed()), (5, 3));
    }

    #[test]
    fn a_change_that_somebody_else_began_is_not_timed() {
        let mut told = Told::nothing();
        told.progress(1);
        told.metrics.leads();
        told.available(1);
        assert_eq!((told.became("ACTIVE"), told.timed()), (1, 0));
    }

    #[test]
    fn each_reason_is_a_failure_of_its_own() {
        let mut told = Told::nothing();
        told.progress(1);
        told.fail(1, "ImagePullFailed");
        told.fail(1, "ImagePullFailed");
        told.fail(1, "CrashLoop");
        assert_eq!((told.failed("ImagePullFailed"), told.failed("CrashLoop")), (1, 1));
        assert_eq!(told.became("FAILED"), 1, "it was so already");
        told.fail(2, "CrashLoop");
        assert_eq!((told.failed("CrashLoop"), told.became("FAILED")), (2, 2));
    }

    #[test]
    fn a_class_goes_once() {
        let mut told = Told::nothing();
        told.available(1);
        told.tell(2, |it| it.go("", Timestamp::UNIX_EPOCH));
        told.tell(3, |it| it.go("it waits", Timestamp::UNIX_EPOCH));
        told.metrics.goes(&told.class);
        assert_eq!(told.became("DELETED"), 1);

        // One that nothing was made for is let go without a word.
        let mut told = Told::nothing();
        told.fail(1, "InvalidSpec");
        told.metrics.goes(&told.class);
        assert_eq!(told.became("DELETED"), 1);
    }
}
