//! Measures the functions of all classes and compares them with their requirements.
//!
//! A pass [collects](crate::signals::collect) and [folds](crate::signals::fold) metrics, evaluates the
//! requirements ([`evaluate`]), publishes the result ([`crate::observations`]), and writes transitions
//! to status ([`report`]). It changes no workload.

mod evaluate;
mod report;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use oprc_server::stopped;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};

use self::{
    evaluate::{Evaluated, evaluate},
    report::{Finding, Report, Transition, plan_report},
};
use crate::{
    cache::{ApiHealth, Cache},
    config::Config,
    controller::{Applier, Clock, PlatformNow},
    metrics::Metrics,
    observations::{ObservationStore, Observations},
    provider::{MetricsProvider, Point},
    reconcile::{Action, ObservedClass},
    signals::{
        ClassKey, PodIndex, PodRef, QueryResults, QueryTable, Source, Window, collect, fold,
        rate_window,
    },
};

/// Consecutive failed passes after which status says that a class isn't measured: a restart of
/// Prometheus isn't worth two writes for each class.
const REPORT_AFTER_FAILURES: u32 = 3;
/// How long a write in progress may take at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// What a pass needs to know of the configuration.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time between the starts of two passes, and bound on the queries of one.
    pub interval: Duration,
    pub range: Duration,
    pub step: Duration,
    pub scrape_interval: Duration,
    pub queries: QueryTable,
}

impl Options {
    /// `namespace` is the only one that CRM manages.
    pub fn of(config: &Config, namespace: Option<&str>) -> Self {
        let prometheus = &config.prometheus;
        let rate_window = rate_window(prometheus.scrape_interval, prometheus.step);
        Self {
            interval: config.nfr.interval,
            range: prometheus.range,
            step: prometheus.step,
            scrape_interval: prometheus.scrape_interval,
            queries: QueryTable::new(&prometheus.queries, rate_window, namespace),
        }
    }
}

pub struct Analyzer {
    pub options: Options,
    /// Without one nothing is measured, and what was reported earlier is removed.
    pub provider: Option<Box<dyn MetricsProvider>>,
    pub cache: Arc<Cache>,
    pub api_health: ApiHealth,
    pub applier: Arc<Applier>,
    pub platform: PlatformNow,
    pub clock: Clock,
    pub observations: Arc<ObservationStore>,
    pub metrics: Arc<Metrics>,
}

/// What a process remembers between passes. None of it affects decisions.
#[derive(Default)]
struct Memory {
    consecutive_failures: u32,
    /// Until when breaches of the hard latency are counted, by class and function.
    breaches_counted: HashMap<(ClassKey, String), Timestamp>,
}

impl Analyzer {
    /// Runs passes while this process is the leader, until it stops. No request is in progress when
    /// this returns.
    pub async fn run(self, stopping: watch::Receiver<bool>) {
        let mut leadership = self.applier.leadership.changes();
        let mut ticks = interval(self.options.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut memory = Memory::default();
        let mut has_work = true;
        loop {
            let is_leader = *leadership.borrow();
            tokio::select! {
                () = stopped(stopping.clone()) => return,
                changed = leadership.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    // What another leader measures is newer.
                    if !*leadership.borrow_and_update() {
                        self.observations.publish(Observations::default());
                        memory = Memory::default();
                    }
                    has_work = true;
                    ticks.reset_immediately();
                }
                _ = ticks.tick(), if is_leader && has_work => {
                    let reports = tokio::select! {
                        () = stopped(stopping.clone()) => return,
                        reports = self.measure(&mut memory) => reports,
                    };
                    tokio::select! {
                        () = async {
                            stopped(stopping.clone()).await;
                            tokio::time::sleep(SHUTDOWN_TIMEOUT).await;
                        } => return,
                        written = self.write(reports, &stopping) => {
                            has_work = self.provider.is_some() || !written;
                        }
                    }
                }
            }
        }
    }

    /// One pass: measures, publishes, and returns what has to be written.
    async fn measure(&self, memory: &mut Memory) -> Vec<(Arc<ObservedClass>, Report)> {
        let now = (self.clock)();
        let classes = self.cache.classes_after(None);
        let finding = match &self.provider {
            Some(provider) => self.observe(&**provider, memory, now, &classes).await,
            None => Finding::Disabled,
        };
        let latest = self.observations.latest();
        let reports = classes.into_iter().filter_map(|class| {
            let report = plan_report(&class, &latest, &finding, now)?;
            Some((class, report))
        });
        reports.collect()
    }

    /// Measures all functions and publishes the result.
    async fn observe(
        &self,
        provider: &dyn MetricsProvider,
        memory: &mut Memory,
        now: Timestamp,
        classes: &[Arc<ObservedClass>],
    ) -> Finding {
        let started = Instant::now();
        let evaluated = self.evaluate(provider, now, classes.to_vec()).await;
        let result = if evaluated.is_ok() { "ok" } else { "error" };
        self.metrics.nfr.on_pass(result, started.elapsed());
        match evaluated {
            Ok(evaluated) => {
                memory.consecutive_failures = 0;
                self.count_breaches(&evaluated, memory);
                let complete = evaluated.complete;
                self.observations.publish(Observations {
                    observed_at: Some(now),
                    failure: None,
                    classes: Arc::new(evaluated.classes),
                });
                Finding::Measured { complete }
            }
            Err(error) => {
                memory.consecutive_failures = memory.consecutive_failures.saturating_add(1);
                let failures = memory.consecutive_failures;
                tracing::warn!(error, failures, "failed to read metrics, keeping the last ones");
                let last = self.observations.latest();
                self.observations
                    .publish(Observations { failure: Some(error.clone()), ..(*last).clone() });
                Finding::Failed { error, persists: failures >= REPORT_AFTER_FAILURES }
            }
        }
    }

    /// Fails if no query has an answer.
    async fn evaluate(
        &self,
        provider: &dyn MetricsProvider,
        now: Timestamp,
        classes: Vec<Arc<ObservedClass>>,
    ) -> Result<Evaluated, String> {
        let Options { interval, range, step, scrape_interval, queries } = self.options.clone();
        let knative = (self.platform)().can_knative();
        let queries = if knative { queries } else { queries.without(Source::Knative) };
        let window = Window::ending_at(now, range, step);
        let results = collect(provider, &queries, window, interval).await;
        self.count_queries(&results);
        let mut errors = results.answers.values().filter_map(|answer| answer.as_ref().err());
        if results.answers.values().all(Result::is_err) {
            return Err(errors.next().map_or_else(String::new, ToString::to_string));
        }
        let oldest = SignedDuration::try_from(range).unwrap_or(SignedDuration::MAX);
        let pods = self.cache.pods(now.checked_sub(oldest).unwrap_or(Timestamp::MIN));
        let work = move || {
            let serving = pods.iter().filter(|pod| pod.ready).map(PodRef::component_id).collect();
            let folded = fold(&results, &PodIndex::new(pods), scrape_interval, now);
            evaluate(&classes, &folded, &results, &serving)
        };
        tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())
    }

    fn count_queries(&self, results: &QueryResults) {
        for (query, answer) in &results.answers {
            let result = match answer {
                Ok(set) if set.partial => "Partial",
                Ok(_) => "ok",
                Err(error) => error.reason(),
            };
            self.metrics.nfr.on_query(query.name(), result);
            if let Err(error) = answer {
                tracing::debug!(query = query.name(), %error, "query failed");
            }
        }
    }

    /// Adds the breaches since the last pass: the integral of their rate.
    fn count_breaches(&self, evaluated: &Evaluated, memory: &mut Memory) {
        let mut counted = HashMap::new();
        for (class, functions) in &evaluated.breaches {
            for (function, points) in functions {
                let id = (class.clone(), function.clone());
                let step = SignedDuration::try_from(self.options.step).unwrap_or_default();
                let (breaches, until) = integrate(points, memory.breaches_counted.get(&id), step);
                let observation =
                    evaluated.classes.get(class).and_then(|functions| functions.get(function));
                if let Some(observation) = observation.filter(|_| breaches > 0.0) {
                    let environment = &observation.environment;
                    self.metrics.nfr.on_breaches(&class.1, function, environment, breaches);
                }
                if let Some(until) = until {
                    counted.insert(id, until);
                }
            }
        }
        memory.breaches_counted = counted;
    }

    /// Writes transitions. What fails is found again by the next pass. Returns whether all of them are
    /// written.
    async fn write(
        &self,
        reports: Vec<(Arc<ObservedClass>, Report)>,
        stopping: &watch::Receiver<bool>,
    ) -> bool {
        let mut all_written = true;
        for (class, report) in reports {
            if *stopping.borrow() || self.api_health.retry_after().is_some() {
                return false;
            }
            let (namespace, class_runtime) = (&class.namespace, &class.name);
            if let Err(error) = self.applier.apply_nfr_status(&class, &report.status).await {
                tracing::debug!(namespace, class_runtime, %error, "failed to write compliance, retrying");
                all_written = false;
                continue;
            }
            for Transition { function, kind, event } in report.transitions {
                if event.warning {
                    let environment = crate::metrics::environment_of(&class);
                    self.metrics.nfr.on_violation(&class.name, &function, &environment, kind);
                }
                // A failure to record an Event is logged by the applier.
                let _ = self.applier.apply(&class, &mut String::new(), &Action::Event(event)).await;
            }
        }
        all_written
    }
}

/// The number of events from their rate after `counted`, and the time until which they are counted.
/// What was before this process became the leader is left out.
fn integrate(
    points: &[Point],
    counted: Option<&Timestamp>,
    step: SignedDuration,
) -> (f64, Option<Timestamp>) {
    let Some(latest) = points.last() else { return (0.0, counted.copied()) };
    let mut until =
        counted.copied().unwrap_or_else(|| latest.at.checked_sub(step).unwrap_or(latest.at));
    let mut sum = 0.0;
    for point in points.iter().filter(|point| counted.is_none_or(|it| point.at > *it)) {
        // A gap is unknown, so nothing is counted in it.
        let elapsed = point.at.duration_since(until).min(step).max(SignedDuration::ZERO);
        sum += point.value * elapsed.as_secs_f64();
        until = until.max(point.at);
    }
    (sum, Some(until))
}

type ByFunction<T> = BTreeMap<ClassKey, BTreeMap<String, T>>;

#[cfg(test)]
mod tests;
