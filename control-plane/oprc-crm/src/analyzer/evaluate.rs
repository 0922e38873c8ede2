//! From signals to the compliance of each function.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::jiff::Timestamp;
use oprc_nfr::compliance::{
    LoadPoint, LoadWindow, Requirement, RequirementKind, State, StoredState, UnknownReason,
    availability, evaluate as evaluate_requirement,
};
use oprc_unit::{FunctionRequirements, Shape, function_requirements, spec::EnforcementMode};

use super::ByFunction;
use crate::{
    crd::{ComplianceState, RequirementStatus},
    metrics::environment_of,
    observations::{FunctionObservation, RequirementVerdict},
    provider::Point,
    reconcile::ObservedClass,
    signals::{
        ClassKey, Component, ComponentId, ComponentSignals, Folded, QueryResults, Signal, Source,
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
    /// Whether all queries about requests have answers. Otherwise what is unknown may exist.
    pub(super) complete: bool,
}

/// Whether the metrics of a class are read.
pub(super) fn is_measured(class: &ObservedClass) -> bool {
    let Ok(spec) = &class.spec else { return false };
    let enforcement = spec.nfr.as_ref().and_then(|nfr| nfr.enforcement.as_ref());
    class.deleting.is_none() && enforcement.is_none_or(|it| it.mode != EnforcementMode::Off)
}

/// Whether a function of the class has a requirement that can be measured.
pub(super) fn has_requirements(class: &ObservedClass) -> bool {
    let mut all = class.spec.iter().flat_map(|spec| function_requirements(&class.name, spec));
    all.any(|(key, requirements)| {
        !runs_as_job(class, key) && !requirements_of(&requirements).is_empty()
    })
}

/// Whether nobody calls the function, so that it has no metrics of requests.
fn runs_as_job(class: &ObservedClass, function: &str) -> bool {
    let mut functions = class.status.iter().flat_map(|status| &status.functions);
    let found = functions.find(|it| it.key == function).and_then(|it| it.runs_as.as_deref());
    found == Some(Shape::Job.as_str())
}

/// `serving` are the components that have a ready pod.
pub(super) fn evaluate(
    classes: &[Arc<ObservedClass>],
    folded: &Folded,
    results: &QueryResults,
    serving: &BTreeSet<ComponentId>,
) -> Evaluated {
    let window = results.window;
    let step = i64::try_from(window.step().as_millis()).unwrap_or(i64::MAX);
    let bounds = LoadWindow {
        points: &[],
        start: window.start().as_millisecond(),
        end: window.end().as_millisecond(),
        max_gap: step.saturating_mul(MAX_GAP_STEPS),
    };
    let complete = results.answers.iter().all(|(query, answer)| {
        query.source() == Source::CAdvisor || answer.as_ref().is_ok_and(|set| !set.partial)
    });
    let mut evaluated = Evaluated { complete, ..Evaluated::default() };
    for class in classes.iter().filter(|class| is_measured(class)) {
        let Ok(spec) = &class.spec else { continue };
        let key: ClassKey = (class.namespace.clone(), class.name.clone());
        let mut functions = BTreeMap::new();
        let functions_called =
            function_requirements(&class.name, spec).filter(|(key, _)| !runs_as_job(class, key));
        for (function, requirements) in functions_called {
            let component = Component::Function(function.to_owned());
            let id = ComponentId { class: key.clone(), component };
            let signals = folded.components.get(&id);
            let observation = FunctionObservation {
                is_serving: serving.contains(&id),
                ..observe(class, function, &requirements, signals, &bounds)
            };
            functions.insert(function.to_owned(), observation);
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
        RequirementVerdict { requirement, required, verdict, error_budget: None }
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
