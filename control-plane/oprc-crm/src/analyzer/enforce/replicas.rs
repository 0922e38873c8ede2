//! The number of instances of a function.

use oprc_nfr::{
    Bounds, Wait,
    capacity::{InstanceLimits, Learned},
    compliance::{RequirementKind, State},
    enforcement::{Baseline, Decision, Effect, Floor, Hold, Situation, decide_floor},
};
use oprc_unit::{
    Shape,
    spec::{Dimension, EnforcementMode},
};

use super::{
    ClassInput, Enforced, EnforcementOptions, FunctionLoad, Problems, find, round, seconds,
};
use crate::{
    crd::{EffectStatus, NfrChange, Recommendation},
    observations::{FunctionObservation, HeldBy, LiveDecision},
    reconcile::scaling::FunctionScaling,
};

/// Decides on the floor of a function, if it has a requirement that instances can meet.
pub(super) fn decide(
    enforced: &mut Enforced,
    problems: &mut Problems,
    input: &ClassInput<'_>,
    scaling: &FunctionScaling,
    observation: &mut FunctionObservation,
) {
    if !has_load_requirement(observation) {
        return;
    }
    let is_enforced = input.enforces(Dimension::Replicas);
    if is_enforced && scaling.scaled_by_others {
        problems.foreign.push(scaling.key.clone());
    }
    let before = find(&enforced.recommendations, &scaling.key, Dimension::Replicas).cloned();
    let decision = input.loads.get(&scaling.key).and_then(|load| {
        let floor = before.as_ref().map_or_else(Floor::default, |before| Floor {
            applied: is_applied(&enforced.applied, before),
            ..stored_floor(input, before)
        });
        let situation = situation(load, is_violated(observation), scaling, input.options);
        decide_floor(&situation, &floor)
    });
    let Some(decision) = decision else { return };
    if is_enforced {
        add_problems(problems, &scaling.key, &decision);
    }
    let applies = is_enforced && !scaling.scaled_by_others;
    let live = live_decision(input, &decision, scaling, before.as_ref(), applies);
    observation.decisions.push(live);
    if input.frozen && applies {
        return;
    }
    let mut after = recommendation(input, scaling, &decision, before.as_ref());
    if applies {
        apply(enforced, input, &mut after, scaling);
    } else {
        // What isn't applied has no effect.
        after.effect = None;
        enforced.remove_applied(&scaling.key, Dimension::Replicas.as_str());
    }
    enforced.set_recommendation(after);
}

/// Whether a requirement can be met by the number of instances.
pub(super) fn has_load_requirement(function: &FunctionObservation) -> bool {
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

fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or_default()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn instances(target: f64) -> u32 {
    target.round() as u32
}

fn is_applied(applied: &[Recommendation], before: &Recommendation) -> bool {
    let found = find(applied, &before.component, Dimension::Replicas);
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
        limits: limits(scaling, options),
        startup: load.startup,
        ready: load.ready,
        bounds: Bounds { min: count(scaling.min), max: count(scaling.max) },
        safeguards: options.safeguards,
        has_fast_autoscaler: scaling.shape == Shape::Knative,
    }
}

pub(super) fn limits(scaling: &FunctionScaling, options: &EnforcementOptions) -> InstanceLimits {
    InstanceLimits {
        cpu: scaling.cpu_of_instance().unwrap_or(options.default_cpu),
        concurrency: scaling.max_concurrency.map(count),
    }
}

/// What status says about the latest change.
pub(super) fn stored_floor(input: &ClassInput<'_>, before: &Recommendation) -> Floor {
    let since_change = input.since_change(before);
    // What was learned about another version, or how that behaved, says little about this one.
    let is_same = before.generation == Some(input.class.generation);
    let effect = before.effect.as_ref().filter(|_| is_same);
    let baseline =
        effect.and_then(|it| Some(Baseline { latency: it.latency_ms? / 1000.0, load: it.load? }));
    let corrected_at = before.correction_at.as_ref().map(|it| input.age(it.0));
    Floor {
        instances: Some(instances(before.target)),
        applied: false,
        since_change,
        learned: before.service_time.map(|service_time| Learned {
            service_time,
            correction: before.correction.filter(|_| is_same).unwrap_or(1.0),
            age: corrected_at.or(since_change).unwrap_or_default(),
        }),
        effect: effect.map_or_else(Effect::default, |it| Effect {
            before: baseline,
            ineffective: u32::try_from(it.ineffective).unwrap_or_default(),
            stopped: it.reason(),
        }),
    }
}

/// The entry of status: the stored one unless the target, its effect or what was learned has changed, so
/// that nothing is written while nothing changes.
fn recommendation(
    input: &ClassInput<'_>,
    scaling: &FunctionScaling,
    decision: &Decision,
    before: Option<&Recommendation>,
) -> Recommendation {
    let generation = Some(input.class.generation);
    // A new version starts over, with the instances of the last.
    let same_version = before.filter(|it| it.generation == generation);
    let learned = same_version.and_then(|it| stored_floor(input, it).learned);
    let corrected = decision.capacity.new_correction(learned);
    let (correction, correction_at) = corrected.map_or_else(
        || same_version.map(|it| (it.correction, it.correction_at.clone())).unwrap_or_default(),
        |it| (Some(round(it)), Some(seconds(input.now))),
    );
    let new = Recommendation {
        component: scaling.key.clone(),
        dimension: Dimension::Replicas.as_str().to_owned(),
        target: f64::from(decision.floor),
        min: Some(f64::from(scaling.min)),
        max: Some(f64::from(scaling.max)),
        since: Some(seconds(input.now)),
        basis: Some(decision.basis.clone()),
        confidence: Some(round(decision.capacity.confidence)),
        generation,
        service_time: Some(decision.capacity.service_time),
        correction,
        correction_at,
        effect: effect_status(&decision.effect),
        ..Recommendation::default()
    };
    let Some(before) = before.filter(|it| instances(it.target) == decision.floor) else {
        return new;
    };
    let service_time = if corrected.is_some() { new.service_time } else { before.service_time };
    Recommendation {
        since: input.corrected_since(before),
        basis: before.basis.clone(),
        confidence: before.confidence,
        service_time,
        ..new
    }
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
    let found = find(applied, &scaling.key, Dimension::Replicas);
    found.map_or(f64::from(scaling.min), |it| it.target)
}

/// Applies a recommendation. What the specification requires anyway isn't an entry. Neither is a single
/// instance of a function that may have none: it starts when it is called.
fn apply(
    enforced: &mut Enforced,
    input: &ClassInput<'_>,
    after: &mut Recommendation,
    scaling: &FunctionScaling,
) {
    let from = applied_target(&enforced.applied, scaling);
    let is_entry = instances(after.target) > count(scaling.min).max(1);
    let to = if is_entry { after.target } else { f64::from(scaling.min) };
    if instances(from) != instances(to) {
        // It may have been recommended long before enforcement was turned on.
        after.since = Some(seconds(input.now));
        enforced.record_change(NfrChange {
            at: seconds(input.now),
            component: scaling.key.clone(),
            dimension: after.dimension.clone(),
            from,
            to,
            basis: after.basis.clone().unwrap_or_default(),
        });
    }
    if is_entry {
        enforced.set_applied(after.clone());
    } else {
        enforced.remove_applied(&after.component, &after.dimension);
    }
}

fn live_decision(
    input: &ClassInput<'_>,
    decision: &Decision,
    scaling: &FunctionScaling,
    before: Option<&Recommendation>,
    applies: bool,
) -> LiveDecision {
    let current = before.map_or(f64::from(scaling.min), |it| it.target);
    let mode = if applies { EnforcementMode::Enforce } else { EnforcementMode::Observe };
    let next = match decision.hold {
        Some(Hold::Safeguard(Wait::RaiseInterval(seconds) | Wait::Cooldown(seconds))) => {
            input.later(seconds)
        }
        _ => None,
    };
    let differs = decision.change.recommended != instances(current);
    let held = if input.frozen && applies {
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

fn add_problems(problems: &mut Problems, function: &str, decision: &Decision) {
    if decision.missing > 0 {
        let (missing, all) = (decision.missing, decision.floor);
        problems.missing.push(format!("{function}: {missing} of {all} instances aren't ready"));
    }
    if let Some(stopped) = decision.effect.stopped {
        problems.stopped.push(format!("{function}: {stopped}"));
    }
    let change = &decision.change;
    if change.needed > change.recommended {
        let (needed, max) = (change.needed, change.recommended);
        problems.limited.push(format!("{function}: needs {needed} instances, limited to {max}"));
    }
}
