//! Measures the functions of all classes and compares them with their requirements.
//!
//! A pass [collects](crate::signals::collect) and [folds](crate::signals::Folding) metrics, evaluates the
//! requirements ([`evaluate`]), decides what to change ([`enforce`]), publishes the result
//! ([`crate::observations`]), and writes transitions and decisions to status ([`report`]). It changes no
//! workload: the reconciler renders what status says.

mod enforce;
mod evaluate;
mod report;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use oprc_nfr::Safeguards;
use oprc_server::stopped;
use oprc_unit::{Platform, Profile, spec::EnforcementMode};
use tokio::{sync::watch, time::sleep_until};

pub use self::enforce::EnforcementOptions;
use self::{
    enforce::{ClassInput, Enforced, carry, enforce},
    evaluate::{Evaluated, Instances, evaluate, requested_mode, wants_recommendations},
    report::{Disabled, Finding, MissingAnswer, Report, Transition, plan_report},
};
use crate::{
    cache::{ApiHealth, Cache},
    config::Config,
    controller::{Applier, Clock, PlatformNow},
    leader::Leadership,
    metrics::Metrics,
    observations::{ObservationStore, Observations},
    provider::{MetricsProvider, Point},
    reconcile::{
        Action, Input, ObservedClass,
        render::{FUNCTION_CONTAINER, GRID_CONTAINER},
        scaling::function_scaling,
    },
    signals::{
        ClassKey, ComponentUsage, Folding, PodIndex, PodRef, QueryResults, QueryTable, RateWindows,
        Source, Usage, UsagePods, Window, collect, collect_usage, fold_usage, usage_queries,
    },
};

/// Consecutive failed passes after which status says that a class isn't measured: a restart of
/// Prometheus isn't worth two writes for each class.
const REPORT_AFTER_FAILURES: u32 = 3;
/// Usage over hours changes slowly: it is read once in this many intervals.
const USAGE_INTERVALS: u32 = 5;
/// Milliseconds after which Prometheus has stored a scrape.
const SCRAPE_DELAY_MS: i64 = 500;
/// How long a write in progress may take at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// What a pass needs to know of the configuration.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time between the starts of two passes if no class is enforced.
    pub interval: Duration,
    /// Time between the starts of two passes otherwise, and bound on the queries of one.
    pub urgent_interval: Duration,
    pub range: Duration,
    pub step: Duration,
    pub scrape_interval: Duration,
    pub queries: QueryTable,
    /// Time that recommendations of CPU and memory look back.
    pub usage_range: Duration,
    pub usage_queries: QueryTable,
    pub enforcement: EnforcementOptions,
    /// Whether the settings freeze enforcement.
    pub frozen: bool,
}

impl Options {
    /// `namespace` is the only one that CRM manages.
    pub fn of(config: &Config, namespace: Option<&str>) -> Self {
        let prometheus = &config.prometheus;
        let nfr = &config.nfr;
        let urgent_interval = nfr.pass_interval();
        // Decisions need a value that is as new as they are. Between two scrapes there is none.
        let step = prometheus.step.min(urgent_interval).max(prometheus.scrape_interval);
        let rate_windows = RateWindows::new(prometheus.scrape_interval, step);
        Self {
            interval: nfr.interval,
            urgent_interval,
            enforcement: EnforcementOptions {
                enabled: nfr.enforcement,
                dimensions: nfr.dimensions.clone(),
                safeguards: Safeguards {
                    stability: nfr.stability.as_secs_f64(),
                    cooldown: nfr.cooldown.as_secs_f64(),
                    max_step_down: (f64::from(nfr.max_replica_delta) / 100.0).min(1.0),
                },
                default_cpu: f64::from(nfr.cpu_per_pod_m) / 1000.0,
                resource_range: prometheus.resource_range,
                effect_window: prometheus.range,
            },
            frozen: nfr.frozen,
            range: prometheus.range,
            step,
            scrape_interval: prometheus.scrape_interval,
            queries: QueryTable::new(&prometheus.queries, rate_windows, namespace),
            usage_range: prometheus.resource_range,
            usage_queries: usage_queries(
                &prometheus.queries,
                namespace,
                &[FUNCTION_CONTAINER, GRID_CONTAINER],
            ),
        }
    }
}

pub struct Analyzer {
    pub options: Options,
    /// None if Prometheus isn't configured.
    pub provider: Option<Box<dyn MetricsProvider>>,
    /// Whether the cluster lacks what makes Prometheus scrape functions: nothing is measured then.
    pub lacks_monitors: Box<dyn Fn() -> bool + Send + Sync>,
    /// Whether a ConfigMap freezes enforcement.
    pub freeze: watch::Receiver<bool>,
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
    /// Consecutive passes in which a query about requests had no answer.
    incomplete_passes: u32,
    /// Why the latest pass read no metrics.
    disabled: Option<Disabled>,
    /// When the latest pass started.
    last_pass: Option<Instant>,
    /// Until when breaches of the hard latency are counted, by class and function.
    breaches_counted: HashMap<(ClassKey, String), Timestamp>,
    /// When the usage over hours was read last, and the answer.
    usage: Option<(Timestamp, Arc<Usage>)>,
}

impl Analyzer {
    /// An analyzer that always leads and knows no class yet. For tests and benchmarks.
    pub fn standalone(
        options: Options,
        provider: Box<dyn MetricsProvider>,
        client: kube::Client,
        clock: Clock,
    ) -> Self {
        let cache = Arc::new(Cache::default());
        let observations = Arc::new(ObservationStore::default());
        let (leadership, api_health) = (Leadership::always(), ApiHealth::default());
        let metrics = Metrics::new(
            &api_health,
            Arc::clone(&cache),
            leadership.clone(),
            Arc::clone(&observations),
        );
        let identity = "standalone".to_owned();
        Self {
            options,
            provider: Some(provider),
            lacks_monitors: Box::new(|| false),
            freeze: watch::channel(false).1,
            applier: Arc::new(Applier { client, cache: Arc::clone(&cache), leadership, identity }),
            cache,
            api_health,
            platform: Arc::new(|| Platform::of(Profile::Dev)),
            clock,
            observations,
            metrics: Arc::new(metrics),
        }
    }

    /// Runs passes while this process is the leader, until it stops. No request is in progress when
    /// this returns.
    pub async fn run(self, stopping: watch::Receiver<bool>) {
        let mut leadership = self.applier.leadership.changes();
        let mut next = tokio::time::Instant::now();
        let mut memory = Memory::default();
        let mut freeze = self.freeze.clone();
        loop {
            let is_leader = *leadership.borrow();
            self.metrics.nfr.set_frozen(self.is_frozen());
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
                    next = tokio::time::Instant::now();
                }
                Ok(()) = freeze.changed() => {
                    memory.last_pass = None;
                    next = tokio::time::Instant::now();
                }
                () = sleep_until(next), if is_leader => {
                    if self.is_due(&memory) {
                        memory.last_pass = Some(Instant::now());
                        let reports = tokio::select! {
                            () = stopped(stopping.clone()) => return,
                            reports = self.measure(&mut memory) => reports,
                        };
                        tokio::select! {
                            () = async {
                                stopped(stopping.clone()).await;
                                tokio::time::sleep(SHUTDOWN_TIMEOUT).await;
                            } => return,
                            () = self.write(reports, &stopping) => {}
                        }
                    }
                    next = tokio::time::Instant::now() + self.until_next();
                }
            }
        }
    }

    /// The time until the next pass. Passes are shortly after multiples of their interval, at which queries
    /// have values: otherwise the latest would be older.
    fn until_next(&self) -> Duration {
        let interval = self.options.urgent_interval.as_millis().max(1);
        let interval = i64::try_from(interval).unwrap_or(i64::MAX);
        let past = (self.clock)().as_millisecond().saturating_sub(SCRAPE_DELAY_MS);
        Duration::from_millis((interval - past.rem_euclid(interval)).unsigned_abs())
    }

    fn is_frozen(&self) -> bool {
        self.options.frozen || *self.freeze.borrow()
    }

    /// Whether a class is enforced, or the interval has passed.
    fn is_due(&self, memory: &Memory) -> bool {
        let Options { interval, urgent_interval, enforcement, .. } = &self.options;
        // Ticks may be early by a little.
        let interval = interval.saturating_sub(*urgent_interval / 2);
        memory.last_pass.is_none_or(|last| last.elapsed() >= interval)
            || enforcement.enabled
                && self
                    .cache
                    .classes_after(None)
                    .iter()
                    .any(|class| requested_mode(class) == EnforcementMode::Enforce)
    }

    /// One pass that remembers nothing of earlier ones. For benchmarks.
    pub async fn pass(&self) {
        let (_running, stopping) = watch::channel(false);
        let reports = self.measure(&mut Memory::default()).await;
        self.write(reports, &stopping).await;
    }

    /// One pass: measures, publishes, and returns what has to be written.
    async fn measure(&self, memory: &mut Memory) -> Vec<(Arc<ObservedClass>, Report)> {
        let now = (self.clock)();
        let classes = self.cache.classes_after(None);
        let (finding, mut enforced) = match &self.provider {
            None => self.disable(Disabled::NotConfigured, memory),
            Some(_) if (self.lacks_monitors)() => self.disable(Disabled::MissingCrds, memory),
            Some(provider) => self.observe(&**provider, memory, now, &classes).await,
        };
        let latest = self.observations.latest();
        let reports = classes.into_iter().filter_map(|class| {
            let key: ClassKey = (class.namespace.clone(), class.name.clone());
            let enforced =
                enforced.remove(&key).unwrap_or_else(|| carry(&class, &self.options.enforcement));
            let report = plan_report(&class, &latest, &finding, enforced, now)?;
            Some((class, report))
        });
        reports.collect()
    }

    /// What was measured before says nothing about the present.
    fn disable(
        &self,
        disabled: Disabled,
        memory: &mut Memory,
    ) -> (Finding, BTreeMap<ClassKey, Enforced>) {
        let is_new = memory.disabled.replace(disabled) != Some(disabled);
        if is_new && disabled == Disabled::MissingCrds {
            tracing::warn!("Prometheus Operator CRDs not found, not reading metrics");
        }
        self.observations.publish(Observations::default());
        (Finding::Disabled(disabled), BTreeMap::new())
    }

    /// Measures all functions and publishes the result.
    async fn observe(
        &self,
        provider: &dyn MetricsProvider,
        memory: &mut Memory,
        now: Timestamp,
        classes: &[Arc<ObservedClass>],
    ) -> (Finding, BTreeMap<ClassKey, Enforced>) {
        memory.disabled = None;
        let started = Instant::now();
        let evaluated = self.evaluate(provider, now, classes.to_vec()).await;
        let result = if evaluated.is_ok() { "ok" } else { "error" };
        self.metrics.nfr.on_pass(result, started.elapsed());
        match evaluated {
            Ok(mut evaluated) => {
                memory.consecutive_failures = 0;
                self.count_breaches(&evaluated, memory);
                let missing = evaluated.missing.take();
                memory.incomplete_passes =
                    missing.as_ref().map_or(0, |_| memory.incomplete_passes.saturating_add(1));
                let persists = memory.incomplete_passes >= REPORT_AFTER_FAILURES;
                let missing = missing.map(|error| MissingAnswer { error, persists });
                let usage = self.usage(provider, memory, now).await;
                let enforced = self.enforce(&mut evaluated, classes, &usage, now);
                self.observations.publish(Observations {
                    observed_at: Some(now),
                    failure: None,
                    classes: Arc::new(evaluated.classes),
                });
                (Finding::Measured { missing }, enforced)
            }
            Err(error) => {
                memory.consecutive_failures = memory.consecutive_failures.saturating_add(1);
                let failures = memory.consecutive_failures;
                tracing::warn!(error, failures, "failed to read metrics, keeping the last ones");
                let last = self.observations.latest();
                self.observations
                    .publish(Observations { failure: Some(error.clone()), ..(*last).clone() });
                let persists = failures >= REPORT_AFTER_FAILURES;
                (Finding::Failed { error, persists }, BTreeMap::new())
            }
        }
    }

    /// Usage over hours, from memory unless that is old. What can't be read is unknown.
    async fn usage(
        &self,
        provider: &dyn MetricsProvider,
        memory: &mut Memory,
        now: Timestamp,
    ) -> Arc<Usage> {
        let Options { interval, urgent_interval, range, usage_range, usage_queries, .. } =
            &self.options;
        let max_age = interval.saturating_mul(USAGE_INTERVALS);
        if let Some((read_at, usage)) = &memory.usage
            && now.duration_since(*read_at).unsigned_abs() < max_age
        {
            return Arc::clone(usage);
        }
        let pods = UsagePods::new(self.pods_since(now, *range));
        let (range, limit) = (*usage_range, *urgent_interval);
        let results = collect_usage(provider, usage_queries, &pods, now, range, limit).await;
        self.count_queries(&results);
        let work = move || fold_usage(&results, &pods, now);
        let usage = Arc::new(tokio::task::spawn_blocking(work).await.unwrap_or_default());
        memory.usage = Some((now, Arc::clone(&usage)));
        usage
    }

    /// The pods that exist, and those that were deleted within `range`.
    fn pods_since(&self, now: Timestamp, range: Duration) -> Vec<PodRef> {
        self.cache.pods(before(now, range))
    }

    /// Decides for all classes with requirements, and adds the decisions to what is published.
    fn enforce(
        &self,
        evaluated: &mut Evaluated,
        classes: &[Arc<ObservedClass>],
        usage: &Usage,
        now: Timestamp,
    ) -> BTreeMap<ClassKey, Enforced> {
        let platform = (self.platform)();
        let frozen = self.is_frozen();
        // The freeze may have begun during this pass.
        self.metrics.nfr.set_frozen(frozen);
        let (no_loads, no_instances) = (BTreeMap::new(), BTreeMap::new());
        let mut oom_kills: HashMap<ClassKey, Vec<_>> = HashMap::new();
        for (pod, kill) in self.cache.oom_kills(before(now, self.options.range)) {
            oom_kills.entry(pod.class.clone()).or_default().push((pod, kill));
        }
        let mut usage_by_class: HashMap<&ClassKey, BTreeMap<&str, &ComponentUsage>> =
            HashMap::new();
        for (id, usage) in &usage.components {
            usage_by_class.entry(&id.class).or_default().insert(id.component.key(), usage);
        }
        let mut all = BTreeMap::new();
        for class in classes {
            let key: ClassKey = (class.namespace.clone(), class.name.clone());
            let Some(functions) = evaluated.classes.get_mut(&key) else { continue };
            let input =
                Input { class, platform: &platform, view: &*self.cache, now, failures: &[] };
            let scaling =
                if wants_recommendations(class) { function_scaling(&input) } else { Vec::new() };
            let input = ClassInput {
                class,
                loads: evaluated.loads.get(&key).unwrap_or(&no_loads),
                instances: evaluated.instances.get(&key).unwrap_or(&no_instances),
                usage: usage_by_class.remove(&key).unwrap_or_default(),
                oom_kills: oom_kills.get(&key).map_or(&[], Vec::as_slice),
                scaling: &scaling,
                options: &self.options.enforcement,
                frozen,
                now,
            };
            all.insert(key, enforce(&input, functions));
        }
        all
    }

    /// Fails if no query has an answer.
    async fn evaluate(
        &self,
        provider: &dyn MetricsProvider,
        now: Timestamp,
        classes: Vec<Arc<ObservedClass>>,
    ) -> Result<Evaluated, String> {
        let Options { urgent_interval, range, step, scrape_interval, queries, .. } =
            self.options.clone();
        let knative = (self.platform)().can_knative();
        let queries = if knative { queries } else { queries.without(Source::Knative) };
        let window = Window::ending_at(now, range, step);
        let pods = self.pods_since(now, range);
        let instances = Instances::by_component(&pods);
        let pods = Arc::new(PodIndex::new(pods));
        let results = collect(provider, &queries, window, &pods, urgent_interval).await;
        self.count_queries(&results);
        let mut errors = results.answers.values().filter_map(|answer| answer.as_ref().err());
        if results.answers.values().all(Result::is_err) {
            return Err(errors.next().map_or_else(String::new, ToString::to_string));
        }
        let work = move || {
            let folding = Folding::new(&results, &pods, scrape_interval, now);
            evaluate(&classes, &folding, &results, &instances)
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

    /// Writes transitions and decisions. What fails is found again by the next pass.
    async fn write(
        &self,
        reports: Vec<(Arc<ObservedClass>, Report)>,
        stopping: &watch::Receiver<bool>,
    ) {
        for (class, report) in reports {
            if *stopping.borrow() || self.api_health.retry_after().is_some() {
                return;
            }
            let (namespace, class_runtime) = (&class.namespace, &class.name);
            if let Err(error) = self.applier.apply_nfr_status(&class, &report.status).await {
                tracing::debug!(namespace, class_runtime, %error, "failed to write compliance, retrying");
                continue;
            }
            let environment = crate::metrics::environment_of(&class);
            for (change, event) in report.applied {
                self.metrics.nfr.on_applied(&class.name, &environment, &change);
                let _ = self.applier.apply(&class, &mut String::new(), &Action::Event(event)).await;
            }
            for event in report.oom_kills {
                let _ = self.applier.apply(&class, &mut String::new(), &Action::Event(event)).await;
            }
            for Transition { function, kind, event } in report.transitions {
                if event.warning {
                    self.metrics.nfr.on_violation(&class.name, &function, &environment, kind);
                }
                // A failure to record an Event is logged by the applier.
                let _ = self.applier.apply(&class, &mut String::new(), &Action::Event(event)).await;
            }
        }
    }
}

fn before(now: Timestamp, range: Duration) -> Timestamp {
    let range = SignedDuration::try_from(range).unwrap_or(SignedDuration::MAX);
    now.checked_sub(range).unwrap_or(Timestamp::MIN)
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
