//! From measurements to what enforcement applies. Pure: what it remembers is in status.
//!
//! A class that is only observed gets the same recommendations as one that is enforced, under the same
//! safeguards; they are just not applied.

use std::collections::BTreeMap;

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};
use oprc_nfr::{
    Bounds, Safeguards, Wait,
    capacity::{InstanceLimits, Learned, LoadSample},
    compliance::{RequirementKind, State},
    enforcement::{Baseline, Decision, Effect, Floor, Hold, Situation, Stopped, decide_floor},
};
use oprc_unit::spec::{Dimension, EnforcementMode};

use super::evaluate::requested_mode;
use crate::{
    crd::{EffectStatus, NfrChange, Recommendation},
    observations::{FunctionObservation, HeldBy, LiveDecision},
    reason::Reason,
    reconcile::{EventRecord, ObservedClass, scaling::FunctionScaling},
};

/// Bound on the changes that status keeps.
const MAX_HISTORY: usize = 20;

/// What enforcement may do.
#[derive(Clone, Debug)]
pub struct EnforcementOptions {
    /// Whether it may change anything at all.
    pub enabled: bool,
    pub dimensions: Vec<Dimension>,
    pub safeguards: Safeguards,
    /// CPU cores of an instance without limit and request.
    pub default_cpu: f64,
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
    /// Bound on the 95th percentile of latency, in seconds.
    pub(super) latency_bound: Option<f64>,
}

/// The part of a status that enforcement owns.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Enforced {
    pub(super) recommendations: Vec<Recommendation>,
    pub(super) applied: Vec<Recommendation>,
    pub(super) last_applied_at: Option<Time>,
    pub(super) history: Vec<NfrChange>,
    /// `NfrEnforced`: its status, reason and message. None unless enforcement is requested.
    pub(super) condition: Option<(bool, Reason, String)>,
    /// The changes of this pass.
    pub(super) changes: Vec<NfrChange>,
}

impl Enforced {
    pub(super) fn events(&self) -> impl Iterator<Item = EventRecord> {
        self.changes.iter().map(|change| {
            let NfrChange { component, dimension, from, to, basis, .. } = change;
            let note = format!("{component}: {dimension} {from} → {to}: {basis}");
            EventRecord { warning: false, reason: Reason::NFRApplied, note }
        })
    }
}

/// What stays as it is while nothing is measured.
pub(super) fn carry(class: &ObservedClass, options: &EnforcementOptions) -> Enforced {
    let Some(status) = &class.status else { return Enforced::default() };
    let mode = requested_mode(class);
    if mode == EnforcementMode::Off {
        return Enforced::default();
    }
    let is_enforced = mode == EnforcementMode::Enforce && options.enabled;
    let applied = status.last_applied_recommendations.iter().filter(|it| {
        is_enforced && Dimension::parse(&it.dimension).is_some_and(|it| may(class, options, it))
    });
    Enforced {
        recommendations: status.nfr_recommendations.clone(),
        applied: applied.cloned().collect(),
        last_applied_at: status.last_applied_at.clone(),
        history: status.nfr_history.clone(),
        condition: None,
        changes: Vec::new(),
    }
}

/// Whether a dimension may be enforced.
fn may(class: &ObservedClass, options: &EnforcementOptions, dimension: Dimension) -> bool {
    let spec = class.spec.as_ref().ok();
    let enforcement = spec.and_then(|spec| spec.nfr.as_ref()?.enforcement.as_ref());
    let own = enforcement.map_or(&[][..], |it| &it.dimensions);
    options.dimensions.contains(&dimension) && (own.is_empty() || own.contains(&dimension))
}

/// Decides for all functions of a class. Adds the decisions to the observations.
pub(super) fn enforce(
    class: &ObservedClass,
    functions: &mut BTreeMap<String, FunctionObservation>,
    loads: &BTreeMap<String, FunctionLoad>,
    scaling: &[FunctionScaling],
    options: &EnforcementOptions,
    frozen: bool,
    now: Timestamp,
) -> Enforced {
    let mut enforced = carry(class, options);
    let mode = requested_mode(class);
    if mode == EnforcementMode::Off {
        return enforced;
    }
    let is_enforced = mode == EnforcementMode::Enforce
        && options.enabled
        && may(class, options, Dimension::Replicas);
    // What was recommended for functions that are gone, or have no such requirement any more.
    let is_current = |it: &Recommendation| {
        let observation = functions.get(&it.component);
        let is_scaled = scaling.iter().any(|scaling| scaling.key == it.component);
        observation.is_some_and(has_load_requirement) && is_scaled
    };
    enforced.recommendations.retain(is_current);
    enforced.applied.retain(is_current);
    let mut problems = Problems { frozen, ..Problems::default() };
    for scaling in scaling {
        let Some(observation) =
            functions.get_mut(&scaling.key).filter(|it| has_load_requirement(it))
        else {
            continue;
        };
        if scaling.scaled_by_others {
            problems.foreign.push(scaling.key.clone());
        }
        let stored = position(&enforced.recommendations, &scaling.key);
        let before = stored.and_then(|at| enforced.recommendations.get(at)).cloned();
        let decision = loads.get(&scaling.key).and_then(|load| {
            let floor = before.as_ref().map_or_else(Floor::default, |before| Floor {
                applied: is_applied(&enforced.applied, before),
                ..stored_floor(class, before, now)
            });
            let situation = situation(load, is_violated(observation), scaling, options);
            decide_floor(&situation, &floor)
        });
        let Some(decision) = decision else { continue };
        problems.add(&scaling.key, &decision);
        let applies = is_enforced && !scaling.scaled_by_others;
        observation.decisions.push(live_decision(
            &decision,
            scaling,
            before.as_ref(),
            applies,
            frozen,
            now,
        ));
        if frozen && applies {
            continue;
        }
        let after = recommendation(class, scaling, &decision, before.as_ref(), now);
        if applies {
            let from = applied_target(&enforced.applied, scaling);
            apply(&mut enforced, &after, from, scaling, &decision, now);
        } else {
            enforced.applied.retain(|it| it.component != scaling.key);
        }
        match stored.and_then(|at| enforced.recommendations.get_mut(at)) {
            Some(entry) => *entry = after,
            None => enforced.recommendations.push(after),
        }
    }
    if mode == EnforcementMode::Enforce {
        enforced.condition = Some(problems.condition(options, is_enforced));
    }
    enforced
}

/// Whether a requirement can be met by the number of instances.
fn has_load_requirement(function: &FunctionObservation) -> bool {
    function.requirements.iter().any(|it| is_about_load(it.requirement.kind()))
}

fn is_about_load(kind: RequirementKind) -> bool {
    matches!(kind, RequirementKind::Latency | RequirementKind::Throughput)
}

fn is_violated(function: &FunctionObservation) -> bool {
    function
        .requirements
        .iter()
        .any(|it| is_about_load(it.requirement.kind()) && it.verdict.state == State::Violated)
}

fn position(recommendations: &[Recommendation], function: &str) -> Option<usize> {
    let replicas = Dimension::Replicas.as_str();
    recommendations.iter().position(|it| it.component == function && it.dimension == replicas)
}

fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or_default()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn instances(target: f64) -> u32 {
    target.round() as u32
}

fn is_applied(applied: &[Recommendation], before: &Recommendation) -> bool {
    let found = position(applied, &before.component).and_then(|at| applied.get(at));
    found.is_some_and(|it| instances(it.target) == instances(before.target))
}

fn situation<'a>(
    load: &'a FunctionLoad,
    violated: bool,
    scaling: &FunctionScaling,
    options: &EnforcementOptions,
) -> Situation<'a> {
    Situation {
        samples: &load.samples,
        interval: load.interval,
        latency_bound: load.latency_bound,
        violated,
        limits: InstanceLimits {
            cpu: scaling.cpu.unwrap_or(options.default_cpu),
            concurrency: scaling.max_concurrency.map(count),
        },
        startup: load.startup,
        ready: load.ready,
        bounds: Bounds { min: count(scaling.min), max: count(scaling.max) },
        safeguards: options.safeguards,
    }
}

/// What status says about the latest change. A time in the future is that of a clock that was wrong:
/// the change counts as just made.
fn stored_floor(class: &ObservedClass, before: &Recommendation, now: Timestamp) -> Floor {
    let since = before.since.as_ref().map(|it| now.duration_since(it.0));
    let since_change = since.map(|it| it.max(SignedDuration::ZERO).as_secs_f64());
    // What was learned about another version, or how that behaved, says little about this one.
    let is_same = before.generation == Some(class.generation);
    let effect = before.effect.as_ref().filter(|_| is_same);
    let baseline =
        effect.and_then(|it| Some(Baseline { latency: it.latency_ms? / 1000.0, load: it.load? }));
    Floor {
        instances: Some(instances(before.target)),
        applied: false,
        since_change,
        learned: before.service_time.map(|service_time| Learned {
            service_time,
            correction: before.correction.filter(|_| is_same).unwrap_or(1.0),
            age: since_change.unwrap_or_default(),
        }),
        effect: effect.map_or_else(Effect::default, |it| Effect {
            before: baseline,
            ineffective: u32::try_from(it.ineffective).unwrap_or_default(),
            stopped: it.stopped.as_deref().and_then(Stopped::parse),
        }),
    }
}

/// The entry of status: the stored one unless the target or its effect has changed, so that nothing is
/// written while nothing changes.
fn recommendation(
    class: &ObservedClass,
    scaling: &FunctionScaling,
    decision: &Decision,
    before: Option<&Recommendation>,
    now: Timestamp,
) -> Recommendation {
    let target = f64::from(decision.floor);
    let effect = effect_status(&decision.effect);
    let unchanged = before.filter(|it| instances(it.target) == decision.floor);
    if let Some(before) = unchanged {
        let is_future = before.since.as_ref().is_some_and(|it| it.0 > now);
        let since = if is_future { Some(seconds(now)) } else { before.since.clone() };
        // A new version starts over, with the instances of the last.
        let is_same = before.generation == Some(class.generation);
        let correction = before.correction.filter(|_| is_same);
        let generation = Some(class.generation);
        return Recommendation { since, generation, correction, effect, ..before.clone() };
    }
    Recommendation {
        component: scaling.key.clone(),
        dimension: Dimension::Replicas.as_str().to_owned(),
        target,
        min: Some(f64::from(scaling.min)),
        max: Some(f64::from(scaling.max)),
        since: Some(seconds(now)),
        basis: Some(decision.basis.clone()),
        confidence: Some(round(decision.capacity.confidence)),
        generation: Some(class.generation),
        service_time: Some(decision.capacity.service_time),
        correction: Some(round(decision.capacity.correction)).filter(|it| *it > 1.0),
        effect,
    }
}

/// The API server stores times with seconds.
fn seconds(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn effect_status(effect: &Effect) -> Option<EffectStatus> {
    let Effect { before, ineffective, stopped } = *effect;
    let status = EffectStatus {
        latency_ms: before.map(|it| round(it.latency * 1000.0)),
        load: before.map(|it| round(it.load)),
        ineffective: i32::try_from(ineffective).unwrap_or(i32::MAX),
        stopped: stopped.map(|it| it.as_str().to_owned()),
    };
    (status != EffectStatus::default()).then_some(status)
}

fn applied_target(applied: &[Recommendation], scaling: &FunctionScaling) -> f64 {
    let found = position(applied, &scaling.key).and_then(|at| applied.get(at));
    found.map_or(f64::from(scaling.min), |it| it.target)
}

/// Applies a recommendation. What the specification requires anyway isn't an entry.
fn apply(
    enforced: &mut Enforced,
    after: &Recommendation,
    from: f64,
    scaling: &FunctionScaling,
    decision: &Decision,
    now: Timestamp,
) {
    let differs = instances(from) != instances(after.target);
    enforced.applied.retain(|it| it.component != scaling.key || it.dimension != after.dimension);
    if instances(after.target) > count(scaling.min) {
        enforced.applied.push(after.clone());
        enforced.applied.sort_by(|left, right| {
            (&left.component, &left.dimension).cmp(&(&right.component, &right.dimension))
        });
    }
    if !differs {
        return;
    }
    let change = NfrChange {
        at: seconds(now),
        component: scaling.key.clone(),
        dimension: after.dimension.clone(),
        from,
        to: after.target,
        basis: decision.basis.clone(),
    };
    enforced.last_applied_at = Some(change.at.clone());
    enforced.history.insert(0, change.clone());
    enforced.history.truncate(MAX_HISTORY);
    enforced.changes.push(change);
}

fn live_decision(
    decision: &Decision,
    scaling: &FunctionScaling,
    before: Option<&Recommendation>,
    applies: bool,
    frozen: bool,
    now: Timestamp,
) -> LiveDecision {
    let current = before.map_or(f64::from(scaling.min), |it| it.target);
    let mode = if applies { EnforcementMode::Enforce } else { EnforcementMode::Observe };
    let later = |seconds: f64| SignedDuration::try_from_secs_f64(seconds).ok();
    let next = match decision.hold {
        Some(Hold::Safeguard(Wait::RaiseInterval(seconds) | Wait::Cooldown(seconds))) => {
            later(seconds).and_then(|it| now.checked_add(it).ok())
        }
        _ => None,
    };
    let differs = decision.change.recommended != instances(current);
    let held = if frozen && applies {
        Some((HeldBy::Freeze, "the end of the freeze".to_owned()))
    } else if scaling.scaled_by_others {
        let waits_for = "the removal of an autoscaler of another owner".to_owned();
        Some((HeldBy::ForeignAutoscaler, waits_for))
    } else {
        decision.hold.map(|it| (it.into(), it.to_string()))
    };
    let (held_by, waits_for) = held.filter(|_| differs).unzip();
    LiveDecision {
        dimension: Dimension::Replicas,
        mode,
        current,
        target: f64::from(decision.change.recommended),
        basis: decision.basis.clone(),
        waits_for,
        held_by,
        next_change_at: next,
    }
}

/// What keeps enforcement from meeting requirements.
#[derive(Default)]
struct Problems {
    frozen: bool,
    foreign: Vec<String>,
    missing: Vec<String>,
    stopped: Vec<String>,
    limited: Vec<String>,
}

impl Problems {
    fn add(&mut self, function: &str, decision: &Decision) {
        if decision.missing > 0 {
            let (missing, all) = (decision.missing, decision.floor);
            self.missing.push(format!("{function}: {missing} of {all} instances aren't ready"));
        }
        if let Some(stopped) = decision.effect.stopped {
            self.stopped.push(format!("{function}: {}", stopped.as_str()));
        }
        let change = &decision.change;
        if change.needed > change.recommended {
            let (needed, max) = (change.needed, change.recommended);
            self.limited.push(format!("{function}: needs {needed} instances, limited to {max}"));
        }
    }

    /// The first that applies.
    fn condition(&self, options: &EnforcementOptions, is_enforced: bool) -> (bool, Reason, String) {
        let join = |all: &[String]| all.join("; ");
        if !options.enabled {
            let message =
                "features.nfr_enforcement of CRM is off: recommendations are only reported";
            (false, Reason::EnforcementDisabled, message.to_owned())
        } else if !is_enforced {
            let message =
                "the dimension replicas is not enforced: recommendations are only reported";
            (false, Reason::EnforcementDisabled, message.to_owned())
        } else if self.frozen {
            let message = "enforcement is frozen: what was applied stays as it is";
            (false, Reason::EnforcementFrozen, message.to_owned())
        } else if !self.foreign.is_empty() {
            let names = self.foreign.join(", ");
            let message = format!("an autoscaler of another owner scales {names}");
            (false, Reason::ForeignAutoscaler, message)
        } else if !self.missing.is_empty() {
            (false, Reason::InstancesMissing, join(&self.missing))
        } else if !self.stopped.is_empty() {
            (false, Reason::NoEffect, join(&self.stopped))
        } else if !self.limited.is_empty() {
            (false, Reason::LimitReached, join(&self.limited))
        } else {
            (true, Reason::Enforced, "requirements are enforced".to_owned())
        }
    }
}
