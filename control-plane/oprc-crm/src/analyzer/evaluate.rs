//! From signals to the compliance of each function.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::jiff::Timestamp;
use oprc_nfr::capacity::LoadSample;
use oprc_nfr::compliance::{
    LoadPoint, LoadWindow, Requirement, RequirementKind, State, StoredState, UnknownReason,
    Verdict, availability, error_budget, evaluate as evaluate_requirement,
};
use oprc_unit::{
    FunctionRequirements, Shape, function_requirements, replication::has_grid,
    spec::EnforcementMode,
};

use super::ByFunction;
use crate::{
    crd::{ComplianceState, RequirementStatus},
    metrics::environment_of,
    observations::{FunctionObservation, RequirementVerdict, Samples},
    provider::Point,
    reconcile::ObservedClass,
    signals::{
        ClassKey, Component, ComponentId, ComponentSignals, Folding, PodRef, QueryResults, Signal,
        Source, Window,
    },
};

/// Steps without a value after which a signal is unknown.
const MAX_GAP_STEPS: i64 = 3;

/// The result of a pass.
#[derive(Debug, Default)]
pub(super) struct Evaluated {
    pub(super) classes: ByFunction<FunctionObservation>,
    /// The rates of breaches of the hard latency.
    pub(super) breaches: ByFunction<Vec<Point>>,
    /// The loads that enforcement decides by.
    pub(super) loads: ByFunction<FunctionLoad>,
    pub(super) instances: ByFunction<Instances>,
    /// Why a query about requests has no answer. If one has none, what is unknown may exist.
    pub(super) missing: Option<String>,
}

/// The load of a function over the window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FunctionLoad {
    /// At equal intervals without a gap, the oldest first; the last is current.
    pub(super) samples: Vec<LoadSample>,
    /// Seconds between two samples.
    pub(super) interval: f64,
    /// Seconds from the creation of an instance until it serves.
    pub(super) startup: Option<f64>,
    /// Instances that are ready.
    pub(super) ready: u32,
    /// Instances that were ready, at each time of the window.
    pub(super) ready_at: Vec<u32>,
    /// Bound on the 95th percentile of latency, in seconds.
    pub(super) latency_bound: Option<f64>,
    /// CPU and memory of the instance that uses most.
    pub(super) cpu: Vec<Point>,
    pub(super) memory: Vec<Point>,
    /// Shares of CPU periods that are throttled.
    pub(super) throttling: Vec<Point>,
}

/// The pods of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Instances {
    pub(super) ready: u32,
    /// When the oldest of those on a node was created.
    pub(super) scheduled_since: Option<Timestamp>,
    /// When the oldest of those that can't be scheduled was created.
    pub(super) unschedulable_since: Option<Timestamp>,
}

impl Instances {
    pub(super) fn by_component(pods: &[PodRef]) -> BTreeMap<ComponentId, Self> {
        let mut all: BTreeMap<_, Self> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| pod.deleted_at.is_none()) {
            let own = all.entry(pod.component_id()).or_default();
            let oldest = |since: Option<Timestamp>| since.into_iter().chain([pod.created]).min();
            own.ready += u32::from(pod.ready);
            if pod.unschedulable {
                own.unschedulable_since = oldest(own.unschedulable_since);
            } else {
                own.scheduled_since = oldest(own.scheduled_since);
            }
        }
        all
    }
}

/// Whether the metrics of a class are read.
pub(super) fn is_measured(class: &ObservedClass) -> bool {
    let is_readable = class.spec.is_ok() && class.deleting.is_none();
    is_readable && requested_mode(class) != EnforcementMode::Off
}

/// The mode of the annotation, or else of the specification. An annotation that isn't a mode only
/// observes: the specification doesn't apply either, because the annotation overrides it.
pub(super) fn requested_mode(class: &ObservedClass) -> EnforcementMode {
    if let Some(annotation) = &class.enforcement {
        return EnforcementMode::parse(annotation).unwrap_or(EnforcementMode::Observe);
    }
    let spec = class.spec.as_ref().ok();
    let enforcement = spec.and_then(|spec| spec.nfr.as_ref()?.enforcement.as_ref());
    enforcement.map_or(EnforcementMode::Observe, |it| it.mode)
}

/// Whether a function of the class has a requirement that can be measured.
pub(super) fn has_requirements(class: &ObservedClass) -> bool {
    let mut all = class.spec.iter().flat_map(|spec| function_requirements(&class.name, spec));
    all.any(|(key, requirements)| {
        !runs_as_job(class, key) && !requirements_of(&requirements).is_empty()
    })
}

/// Whether recommendations are made for the class: it has requirements, or says how they are enforced.
pub(super) fn wants_recommendations(class: &ObservedClass) -> bool {
    let spec = class.spec.as_ref().ok();
    let is_explicit = class.enforcement.is_some()
        || spec.is_some_and(|spec| spec.nfr.as_ref().is_some_and(|it| it.enforcement.is_some()));
    is_measured(class) && (is_explicit || has_requirements(class))
}

/// Whether nobody calls the function, so that it has no metrics of requests.
fn runs_as_job(class: &ObservedClass, function: &str) -> bool {
    let mut functions = class.status.iter().flat_map(|status| &status.functions);
    let found = functions.find(|it| it.key == function).and_then(|it| it.runs_as.as_deref());
    found == Some(Shape::Job.as_str())
}

pub(super) fn evaluate(
    classes: &[Arc<ObservedClass>],
    folding: &Folding<'_>,
    results: &QueryResults,
    instances: &BTreeMap<ComponentId, Instances>,
) -> Evaluated {
    let window = results.window;
    let step = i64::try_from(window.step().as_millis()).unwrap_or(i64::MAX);
    let bounds = LoadWindow {
        points: &[],
        start: window.start().as_millisecond(),
        end: window.end().as_millisecond(),
        max_gap: step.saturating_mul(MAX_GAP_STEPS),
    };
    let about_requests =
        results.answers.iter().filter(|(query, _)| query.source() != Source::CAdvisor);
    let missing = about_requests.filter_map(|(_, answer)| match answer {
        Ok(rows) if rows.partial => Some("an answer of Prometheus is incomplete".to_owned()),
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    });
    let mut evaluated = Evaluated { missing: missing.min(), ..Evaluated::default() };
    for class in classes.iter().filter(|class| is_measured(class)) {
        let Ok(spec) = &class.spec else { continue };
        let key: ClassKey = (class.namespace.clone(), class.name.clone());
        let mut functions = BTreeMap::new();
        let functions_called =
            function_requirements(&class.name, spec).filter(|(key, _)| !runs_as_job(class, key));
        let functions_called = functions_called
            .map(|(key, requirements)| (Component::Function(key.to_owned()), requirements));
        // Requirements are those of functions.
        let grid = has_grid(spec).then(|| (Component::DataGrid, FunctionRequirements::default()));
        for (component, requirements) in functions_called.chain(grid) {
            let function = &*component.key().to_owned();
            let id = ComponentId { class: key.clone(), component };
            let signals = folding.component(&id);
            let signals = signals.as_ref();
            let instances = instances.get(&id).copied().unwrap_or_default();
            let ready = instances.ready;
            let of_class = evaluated.instances.entry(key.clone()).or_default();
            of_class.insert(function.to_owned(), instances);
            let observation = FunctionObservation {
                is_serving: ready > 0,
                instances: ready,
                samples: signals.map(|it| samples(it, &window)).unwrap_or_default(),
                ..observe(class, function, &requirements, signals, &bounds)
            };
            functions.insert(function.to_owned(), observation);
            if let Some(signals) = signals {
                let load = FunctionLoad {
                    ready,
                    latency_bound: requirements.latency.map(|it| f64::from(it) / 1000.0),
                    ..load(signals, &window)
                };
                let of_class = evaluated.loads.entry(key.clone()).or_default();
                of_class.insert(function.to_owned(), load);
            }
            if let Some(breaches) =
                signals.and_then(|signals| signals.get(Signal::HardLatencyBreaches))
            {
                let of_class = evaluated.breaches.entry(key.clone()).or_default();
                of_class.insert(function.to_owned(), breaches.points.clone());
            }
        }
        evaluated.classes.insert(key, functions);
    }
    evaluated
}

fn observe(
    class: &ObservedClass,
    function: &str,
    requirements: &FunctionRequirements,
    signals: Option<&ComponentSignals>,
    bounds: &LoadWindow<'_>,
) -> FunctionObservation {
    let points = signals.map(load_points).unwrap_or_default();
    let window = LoadWindow { points: &points, ..*bounds };
    let latest = |signal: Signal| signals.and_then(|all| all.get(signal)).map(|it| it.latest);
    let verdicts = requirements_of(requirements).into_iter().map(|(requirement, required)| {
        let stored = stored_state(class, function, requirement.kind(), required);
        let verdict = evaluate_requirement(requirement, &window, stored);
        let verdict = with_stored_time(verdict, stored, &window);
        let error_budget = error_budget(requirement, &window);
        RequirementVerdict { requirement, required, verdict, error_budget }
    });
    FunctionObservation {
        environment: environment_of(class),
        throughput: latest(Signal::Rate),
        latency_p50: latest(Signal::LatencyP50),
        latency_p95: latest(Signal::LatencyP95),
        latency_p99: latest(Signal::LatencyP99),
        availability: availability(&points),
        cpu: latest(Signal::Cpu),
        memory: latest(Signal::MemoryMax),
        requirements: verdicts.collect(),
        ..FunctionObservation::default()
    }
}

/// The values of a signal at each time of the window.
fn row(signals: &ComponentSignals, signal: Signal, window: &Window) -> Vec<Option<f64>> {
    let mut row = vec![None; window.len()];
    for point in signals.get(signal).into_iter().flat_map(|observed| &observed.points) {
        if let Some(cell) = window.index(point.at).and_then(|at| row.get_mut(at)) {
            *cell = Some(point.value);
        }
    }
    row
}

fn samples(signals: &ComponentSignals, window: &Window) -> Samples {
    Samples {
        start: window.start(),
        step: window.step(),
        throughput: row(signals, Signal::Rate, window),
        latency_p95: row(signals, Signal::LatencyP95, window),
    }
}

/// The load since the last gap. Without a current value there is none.
fn load(signals: &ComponentSignals, window: &Window) -> FunctionLoad {
    let of = |signal: Signal| row(signals, signal, window);
    let rates = of(Signal::Rate);
    let end = rates.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    let known = rates.iter().take(end);
    let start = known.clone().rposition(Option::is_none).map_or(0, |gap| gap + 1);
    let [rejected, latency, cpu, in_flight, queued] = [
        Signal::RejectedRate,
        Signal::LatencyP95,
        Signal::Cpu,
        Signal::InFlight,
        Signal::QueueLength,
    ]
    .map(of);
    let at = |row: &[Option<f64>], index: usize| row.get(index).copied().flatten();
    let sample = |index: usize| {
        let rejected = at(&rejected, index).unwrap_or_default();
        Some(LoadSample {
            rate: (at(&rates, index)? - rejected).max(0.0),
            rejected,
            instances: f64::from(signals.ready.get(index).copied().unwrap_or_default()),
            latency: at(&latency, index),
            cpu: at(&cpu, index),
            in_flight: at(&in_flight, index),
            queued: at(&queued, index),
        })
    };
    let points =
        |signal: Signal| signals.get(signal).map(|it| it.points.clone()).unwrap_or_default();
    FunctionLoad {
        samples: (start..end).filter_map(sample).collect(),
        interval: window.step().as_secs_f64(),
        startup: signals.start_up.map(|it| it.p90),
        ready_at: signals.ready.clone(),
        cpu: points(Signal::CpuMax),
        memory: points(Signal::MemoryMax),
        throttling: points(Signal::CpuThrottling),
        ..FunctionLoad::default()
    }
}

/// Keeps the stored time of a state that a pass finds a little later. Passes read histograms at different
/// times, so they differ by up to one distance of those.
fn with_stored_time(
    verdict: Verdict,
    stored: Option<StoredState>,
    window: &LoadWindow<'_>,
) -> Verdict {
    let tolerance = window.max_gap.saturating_add(window.max_gap / MAX_GAP_STEPS);
    let is_close = |it: &StoredState| {
        it.state == verdict.state
            && (0..=tolerance).contains(&verdict.since.saturating_sub(it.since))
    };
    let since = stored.filter(is_close).map_or(verdict.since, |it| it.since);
    Verdict { since, ..verdict }
}

/// The requirements that can be measured, each with the required value as it is reported.
fn requirements_of(requirements: &FunctionRequirements) -> Vec<(Requirement, f64)> {
    let FunctionRequirements { throughput, latency, availability, hard_latency, .. } =
        *requirements;
    let throughput = throughput.map(f64::from).map(|it| (Requirement::Throughput(it), it));
    let latency = latency.map(f64::from).map(|it| (Requirement::Latency(it), it));
    let availability = availability.map(|it| (Requirement::Availability(it), it));
    let hard_latency = hard_latency.map(|it| (Requirement::HardLatency, f64::from(it)));
    [throughput, latency, availability, hard_latency].into_iter().flatten().collect()
}

/// The signals at each time at which one of them is known.
fn load_points(signals: &ComponentSignals) -> Vec<LoadPoint> {
    let mut points: BTreeMap<Timestamp, LoadPoint> = BTreeMap::new();
    let mut read = |signal: Signal, set: fn(&mut LoadPoint, f64)| {
        for point in signals.get(signal).into_iter().flat_map(|observed| &observed.points) {
            let entry = points.entry(point.at).or_insert_with(|| LoadPoint {
                at: point.at.as_millisecond(),
                ..LoadPoint::default()
            });
            set(entry, point.value);
        }
    };
    read(Signal::Rate, |point, value| point.rate = Some(value));
    read(Signal::LatencyP95, |point, value| point.latency = Some(value * 1000.0));
    read(Signal::ErrorRatio, |point, value| point.error_ratio = Some(value));
    read(Signal::RejectedRate, |point, value| point.rejected = Some(value));
    read(Signal::QueueLength, |point, value| point.queued = Some(value));
    read(Signal::HardLatencyBreaches, |point, value| point.breaches = Some(value));
    points.into_values().collect()
}

/// The entry of status about a requirement of a function.
pub(super) fn stored_entry<'a>(
    class: &'a ObservedClass,
    function: &str,
    kind: RequirementKind,
) -> Option<&'a RequirementStatus> {
    let entries = class.status.iter().flat_map(|status| &status.nfr_compliance);
    let mut own = entries.filter(|it| it.function == function);
    own.find(|it| RequirementKind::parse(&it.requirement) == Some(kind))
}

/// None if nothing is stored, or the requirement was another one.
fn stored_state(
    class: &ObservedClass,
    function: &str,
    kind: RequirementKind,
    required: f64,
) -> Option<StoredState> {
    let stored = stored_entry(class, function, kind)?;
    let state = match stored.state {
        ComplianceState::Met => State::Met,
        ComplianceState::Violated => State::Violated,
        ComplianceState::Unknown => State::Unknown(UnknownReason::NoData),
    };
    let same = (stored.required - required).abs() <= f64::EPSILON * required.abs();
    same.then(|| StoredState { state, since: stored.since.0.as_millisecond() })
}
