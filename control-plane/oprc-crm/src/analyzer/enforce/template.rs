//! What a function of template `unified` runs as: a Deployment or a Knative Service.

use oprc_nfr::{
    Stopped,
    capacity::learn,
    compliance::{RequirementKind, State},
    migration::{
        LastMigration, MigrationDecision, MigrationHold, MigrationInput, WorkloadKind,
        decide_migration,
    },
};
use oprc_unit::{
    Shape,
    spec::{Dimension, EnforcementMode},
};

use super::{
    ClassInput, Enforced, FunctionLoad, Problems, find,
    replicas::{limits, stored_floor},
    round, seconds,
};
use crate::{
    crd::{EffectStatus, NfrChange, Phase, Recommendation},
    observations::{FunctionObservation, HeldBy, LiveDecision},
    reconcile::scaling::FunctionScaling,
};

const DIMENSION: Dimension = Dimension::Template;

/// Decides on the workload of a function, if there is a choice.
pub(super) fn decide(
    enforced: &mut Enforced,
    problems: &mut Problems,
    input: &ClassInput<'_>,
    scaling: &FunctionScaling,
    observation: &mut FunctionObservation,
) {
    let (Some(running), Some(declared), Some(_)) =
        (workload(scaling.shape), workload(scaling.declared_shape), scaling.alternative_shape)
    else {
        return;
    };
    let function = Function {
        input,
        scaling,
        running,
        declared,
        before: find(&enforced.recommendations, &scaling.key, DIMENSION).cloned(),
        // An autoscaler of another owner scales the Deployment.
        applies: input.enforces(DIMENSION) && !scaling.scaled_by_others,
    };
    let Some(decision) = function.decide(enforced, observation) else { return };
    if function.applies
        && let Some(MigrationHold::Stopped(stopped)) = decision.hold
        // Otherwise a migration was the remedy.
        && stopped != Stopped::ColdStarts
    {
        problems.stopped.push(format!("{}: {stopped}", scaling.key));
    }
    observation.decisions.push(function.live_decision(&decision));
    if input.frozen && function.applies {
        return;
    }
    let entry = function.recommendation(&decision);
    if function.applies {
        function.apply(enforced, entry.as_ref(), &decision);
    } else {
        enforced.remove_applied(&scaling.key, DIMENSION.as_str());
    }
    match entry {
        Some(entry) => enforced.set_recommendation(entry),
        None => enforced
            .recommendations
            .retain(|it| it.component != scaling.key || it.dimension != DIMENSION.as_str()),
    }
}

fn workload(shape: Shape) -> Option<WorkloadKind> {
    WorkloadKind::parse(shape.as_str())
}

fn target(entry: &Recommendation) -> Option<WorkloadKind> {
    entry.template.as_deref().and_then(WorkloadKind::parse)
}

struct Function<'a> {
    input: &'a ClassInput<'a>,
    scaling: &'a FunctionScaling,
    /// What is rendered now.
    running: WorkloadKind,
    declared: WorkloadKind,
    /// The stored recommendation.
    before: Option<Recommendation>,
    applies: bool,
}

impl Function<'_> {
    /// What was decided last, whether it is done or only recommended.
    fn current(&self) -> WorkloadKind {
        let recommended = || self.before.as_ref().and_then(target).unwrap_or(self.declared);
        if self.applies { self.running } else { recommended() }
    }

    fn decide(
        &self,
        enforced: &Enforced,
        observation: &FunctionObservation,
    ) -> Option<MigrationDecision> {
        let Self { input, scaling, .. } = self;
        let load = input.loads.get(&scaling.key);
        let violated = observation.requirements.iter();
        let mut violated = violated.filter(|it| it.verdict.state == State::Violated);
        let is_violated = violated.clone().next().is_some();
        decide_migration(&MigrationInput {
            rates: &self.rates(observation, load),
            latencies: &observation.samples.latency_p95,
            interval: observation.samples.step.as_secs_f64(),
            service_time: load.and_then(|load| self.service_time(enforced, load)),
            latency_bound: load.and_then(|load| load.latency_bound),
            scales_to_zero: scaling.scales_to_zero,
            violated: is_violated,
            latency_violated: violated.any(|it| it.requirement.kind() == RequirementKind::Latency),
            settled: self.is_settled(),
            current: self.current(),
            running: self.running,
            last: self.last_migration(enforced, observation),
            effect_window: input.options.effect_window.as_secs_f64(),
        })
    }

    /// The rates of the window. Knative has no metrics while it has no instance; once one was
    /// measured, its end is known, too.
    fn rates(
        &self,
        observation: &FunctionObservation,
        load: Option<&FunctionLoad>,
    ) -> Vec<Option<f64>> {
        let rates = &observation.samples.throughput;
        let first = rates.iter().position(Option::is_some);
        let is_zero = |index: usize| {
            self.scaling.shape == Shape::Knative
                && first.is_some_and(|first| first < index)
                && load.is_some_and(|load| load.ready_at.get(index) == Some(&0))
        };
        let rate = |(index, rate): (usize, &Option<f64>)| rate.or(is_zero(index).then_some(0.0));
        rates.iter().enumerate().map(rate).collect()
    }

    fn service_time(&self, enforced: &Enforced, load: &FunctionLoad) -> Option<f64> {
        let Self { input, scaling, .. } = self;
        let floor = find(&enforced.recommendations, &scaling.key, Dimension::Replicas);
        let earlier = floor.and_then(|it| stored_floor(input, it).learned);
        let limits = limits(scaling, input.options);
        let capacity = learn(&load.samples, load.interval, &limits, load.latency_bound, earlier);
        capacity.map(|it| it.service_time)
    }

    fn is_settled(&self) -> bool {
        let class = self.input.class;
        let is_paused = class.spec.as_ref().is_ok_and(|spec| spec.paused);
        !is_paused
            && class.status.as_ref().is_some_and(|it| {
                it.phase == Phase::Available && it.observed_generation == Some(class.generation)
            })
    }

    fn last_migration(
        &self,
        enforced: &Enforced,
        observation: &FunctionObservation,
    ) -> LastMigration {
        let Some(before) = &self.before else { return LastMigration::default() };
        let (key, current) = (&self.scaling.key, self.current());
        // A new specification may behave differently.
        let is_same = before.generation == Some(self.input.class.generation);
        let effect = before.effect.clone().filter(|_| is_same).unwrap_or_default();
        let last = LastMigration {
            reversals: u32::try_from(effect.ineffective).unwrap_or_default(),
            stopped: effect.reason(),
            ..LastMigration::default()
        };
        let Some(since) = before.since.as_ref().filter(|_| target(before) == Some(current)) else {
            return last;
        };
        let is_own = |it: &&NfrChange| it.component == *key && it.dimension == DIMENSION.as_str();
        let applied = find(&enforced.applied, key, DIMENSION).is_some()
            || enforced.history.iter().find(is_own).is_some_and(|it| it.at == *since);
        let status = self.input.class.status.as_ref();
        let runs_as = status.and_then(|it| it.functions.iter().find(|it| it.key == *key));
        let became_violated = observation.requirements.iter().any(|it| {
            it.verdict.state == State::Violated && it.verdict.since > since.0.as_millisecond()
        });
        LastMigration {
            since: self.input.since_change(before),
            applied: self.applies && applied,
            ready: runs_as.and_then(|it| it.runs_as.as_deref()) == Some(current.as_str()),
            violated: became_violated,
            ..last
        }
    }

    /// The entry of status: the stored one unless the workload changes. None before the first change.
    fn recommendation(&self, decision: &MigrationDecision) -> Option<Recommendation> {
        let (input, workload) = (self.input, decision.workload);
        let effect = EffectStatus {
            ineffective: i32::try_from(decision.reversals).unwrap_or(i32::MAX),
            stopped: decision.stopped.map(|it| it.as_str().to_owned()),
            ..EffectStatus::default()
        };
        let effect = Some(effect).filter(|it| *it != EffectStatus::default());
        let generation = Some(input.class.generation);
        if workload == self.current() {
            // A recommendation that can't be applied yet stays.
            let is_kept =
                |it: &&Recommendation| target(it) == Some(workload) || decision.hold.is_some();
            let before = self.before.as_ref().filter(is_kept)?;
            let since = input.corrected_since(before);
            return Some(Recommendation { since, generation, effect, ..before.clone() });
        }
        Some(Recommendation {
            component: self.scaling.key.clone(),
            dimension: DIMENSION.as_str().to_owned(),
            target: workload.value(),
            template: Some(workload.as_str().to_owned()),
            since: Some(seconds(input.now)),
            basis: Some(decision.basis.clone()),
            confidence: Some(round(decision.confidence)),
            generation,
            effect,
            ..Recommendation::default()
        })
    }

    /// Applies a decision. What the declaration leads to anyway isn't an entry.
    fn apply(
        &self,
        enforced: &mut Enforced,
        entry: Option<&Recommendation>,
        decision: &MigrationDecision,
    ) {
        let key = &self.scaling.key;
        if decision.workload == self.declared {
            enforced.remove_applied(key, DIMENSION.as_str());
        } else if let Some(entry) = entry {
            enforced.set_applied(entry.clone());
        }
        if decision.workload != self.running {
            enforced.record_change(NfrChange {
                at: seconds(self.input.now),
                component: key.clone(),
                dimension: DIMENSION.as_str().to_owned(),
                from: self.running.value(),
                to: decision.workload.value(),
                basis: decision.basis.clone(),
            });
        }
    }

    fn live_decision(&self, decision: &MigrationDecision) -> LiveDecision {
        let mode = if self.applies { EnforcementMode::Enforce } else { EnforcementMode::Observe };
        let held = if self.input.frozen && self.applies {
            Some((HeldBy::Freeze, "the end of the freeze".to_owned()))
        } else if self.scaling.scaled_by_others {
            let waits_for = "the removal of an autoscaler of another owner".to_owned();
            Some((HeldBy::ForeignAutoscaler, waits_for))
        } else {
            decision.hold.map(|it| (it.into(), it.to_string()))
        };
        let (held_by, waits_for) = held.filter(|_| decision.recommended != self.running).unzip();
        let next = match decision.hold {
            Some(MigrationHold::Cooldown(seconds)) => self.input.later(seconds),
            _ => None,
        };
        LiveDecision {
            dimension: DIMENSION,
            mode,
            current: self.running.value(),
            target: decision.recommended.value(),
            basis: decision.basis.clone(),
            waits_for,
            held_by,
            next_change_at: next,
        }
    }
}
