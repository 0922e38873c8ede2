//! CPU and memory of the instances of a function.
//!
//! A change replaces all instances, so changes that aren't urgent are at least 10 minutes apart. What
//! the user wrote is never lowered: a lower recommendation is only advice.

use oprc_nfr::{
    Stopped,
    resources::{
        Allocation, MIN_SAMPLES, OomKills, Resource, ResourceBounds, ResourceChange,
        ResourceDecision, ResourceInput, ResourceRecommendation, ResourceSafeguards, Rollout,
        Throttling, UsageSample, WaitReason, decide as decide_change, recommend_cpu,
        recommend_memory,
    },
};
use oprc_unit::spec::EnforcementMode;

use super::{ClassInput, Enforced, FunctionLoad, Problems, find, oom, round, seconds};
use crate::{
    crd::{EffectStatus, GRID_KEY, NfrChange, PreviousValue, Recommendation},
    observations::{FunctionObservation, HeldBy, LiveDecision},
    provider::Point,
    reconcile::{
        container_resources::{ContainerResource, dimension},
        scaling::FunctionScaling,
    },
    signals::{USAGE_STEP, is_same_image},
};

/// Seconds between two changes that aren't urgent.
const MIN_COOLDOWN: f64 = 600.0;
/// Seconds in which memory can be raised before an instance is out of it.
const GROWTH_HORIZON: f64 = 600.0;
/// Share of throttled periods above which a CPU limit is raised.
const MAX_THROTTLING: f64 = 0.25;
/// Changes after which instances are still killed, until memory isn't raised any more.
const MAX_INEFFECTIVE: i32 = 2;
/// Seconds without a kill after which memory may be raised again.
const QUIET: f64 = 86_400.0;
/// Share of the effect window after which a raise that can't be scheduled is taken back: it leaves a
/// cluster autoscaler time to add a node, and is less than Knative's deadline for a revision.
const PATIENCE: f64 = 0.5;

/// Decides on both resources of a function.
pub(super) fn decide(
    enforced: &mut Enforced,
    problems: &mut Problems,
    input: &ClassInput<'_>,
    scaling: &FunctionScaling,
    observation: &mut FunctionObservation,
) {
    for resource in [Resource::Memory, Resource::Cpu] {
        let dimension = dimension(resource);
        // A foreign autoscaler compares the usage with the CPU request.
        let is_foreign = resource == Resource::Cpu && scaling.scaled_by_others;
        let mut function = Function {
            input,
            scaling,
            resource,
            of: match resource {
                Resource::Cpu => &scaling.cpu,
                Resource::Memory => &scaling.memory,
            },
            before: find(&enforced.recommendations, &scaling.key, dimension).cloned(),
            is_applied: find(&enforced.applied, &scaling.key, dimension).is_some(),
            is_foreign,
            applies: input.enforces(dimension) && !is_foreign && !scaling.only_recommended,
        };
        function.revert(enforced);
        problems.unschedulable.extend(function.reverted());
        let Some(outcome) = function.decide(enforced) else { continue };
        if function.applies {
            problems.stopped.extend(outcome.stopped());
            problems.limited.extend(outcome.limited.clone());
        }
        observation.decisions.push(function.live_decision(&outcome));
        if (input.frozen || function.lacks_grid_nodes()) && function.applies {
            continue;
        }
        if !function.applies {
            enforced.remove_applied(&scaling.key, dimension.as_str());
        }
        let Some(entry) = function.recommendation(&outcome) else { continue };
        let entry = if function.applies { function.apply(enforced, entry) } else { entry };
        enforced.set_recommendation(entry);
    }
}

/// One resource of a function.
struct Function<'a> {
    input: &'a ClassInput<'a>,
    scaling: &'a FunctionScaling,
    resource: Resource,
    of: &'a ContainerResource,
    /// The stored recommendation.
    before: Option<Recommendation>,
    is_applied: bool,
    is_foreign: bool,
    applies: bool,
}

/// What is recommended, and what becomes of it.
struct Outcome {
    found: ResourceRecommendation,
    /// None if the recommendation stays as it is.
    change: Option<ResourceChange>,
    wait: Option<WaitReason>,
    effect: EffectStatus,
    /// Whether a change is held because of the effect of earlier ones.
    is_stopped: bool,
    /// Whether the usage of the last hours is known.
    is_known: bool,
    limited: Option<String>,
    function: String,
}

impl Outcome {
    fn stopped(&self) -> Option<String> {
        let stopped = self.effect.reason().filter(|it| *it == Stopped::KilledAgain)?;
        Some(format!("{}: {stopped}", self.function))
    }
}

impl Function<'_> {
    /// None if nothing is known.
    fn decide(&self, enforced: &Enforced) -> Option<Outcome> {
        let load = self.input.loads.get(&self.scaling.key);
        let history = self.history();
        let samples = self.samples(load, history);
        let peak = samples.iter().map(|it| it.value).filter(|it| it.is_finite()).reduce(f64::max);
        let kills = oom::evidence(enforced, self.input, self.scaling, peak);
        let found = self.recommend(&samples, kills, load)?;
        let stored = self.before.as_ref().map(|it| self.stored(it, &found)).unwrap_or_default();
        let since = self.before.as_ref().and_then(|it| self.input.since_change(it));
        let decision = decide_change(&found, stored, since, &self.safeguards(found.urgent));
        let present = stored.request.or(self.of.current.request);
        let decision =
            if self.applies { self.rollout().guard(decision, present) } else { decision };
        let is_known = history.is_some();
        let change = decision.change().filter(|_| is_known || found.urgent);
        let raises = change.filter(|it| present.is_none_or(|present| it.request > present));
        let effect = self.effect(enforced, raises.is_some());
        let is_stopped = raises.is_some() && effect.reason().is_some();
        let is_limited = found.urgent && change.is_none() && present >= Some(self.of.max);
        let limited = is_limited.then(|| {
            let (key, max) = (&self.scaling.key, self.resource.show(self.of.max));
            let name = dimension(self.resource).as_str();
            format!("{key}: needs more {name}, limited to {max}")
        });
        Some(Outcome {
            change: change.filter(|_| !is_stopped),
            wait: match decision {
                ResourceDecision::Wait(reason) => Some(reason),
                ResourceDecision::Apply(_) | ResourceDecision::Keep => None,
            },
            function: self.scaling.key.clone(),
            effect,
            is_stopped,
            is_known,
            limited,
            found,
        })
    }

    /// Takes back a raise whose instances can't be scheduled.
    fn revert(&mut self, enforced: &mut Enforced) {
        let is_active = self.applies && self.is_applied && !self.input.frozen;
        let Some(before) = self.before.as_ref().filter(|_| is_active) else { return };
        let applied = self.of.applied(before.target, before.limit);
        let previous = before.previous.as_ref();
        let previous =
            previous.map_or(self.of.specified, |it| self.of.applied(it.target, it.limit));
        let rollout = self.rollout();
        let patience = self.input.options.effect_window.as_secs_f64() * PATIENCE;
        let (Some(from), Some(to), true) =
            (applied.request, previous.request, rollout.reverts(previous, applied, patience))
        else {
            return;
        };
        let entry = Recommendation {
            target: to,
            limit: previous.limit,
            previous: None,
            basis: Some(rollout.explain(self.resource, from)),
            effect: Some(EffectStatus::stopped(Stopped::Unschedulable)),
            ..before.clone()
        };
        let entry = self.apply(enforced, entry);
        enforced.set_recommendation(entry.clone());
        self.before = Some(entry);
    }

    /// What the condition says after a raise was taken back.
    fn reverted(&self) -> Option<String> {
        let stopped = self.rollout().reverted.then_some(Stopped::Unschedulable)?;
        let name = dimension(self.resource).as_str();
        Some(format!("{}: {name}: {stopped}", self.scaling.key))
    }

    /// Whether a change, which replaces a node, could leave the data grid without a majority.
    fn lacks_grid_nodes(&self) -> bool {
        let ready = self.input.instances.get(&self.scaling.key).map_or(0, |it| it.ready);
        self.scaling.key == GRID_KEY && i64::from(ready) < i64::from(self.scaling.min)
    }

    /// The instances since the latest change.
    fn rollout(&self) -> Rollout {
        let instances = self.input.instances.get(&self.scaling.key).copied().unwrap_or_default();
        let before = self.before.as_ref().filter(|_| self.applies);
        let since = before.and_then(|it| it.since.as_ref()).map(|it| it.0);
        let stopped = before.and_then(|it| it.effect.as_ref()?.reason());
        let waits_since = instances
            .unschedulable_since
            .map(|created| since.map_or(created, |since| since.max(created)));
        Rollout {
            // Without an earlier instance nothing would be gained by its resources.
            complete: instances.scheduled_since.is_none_or(|created| Some(created) >= since),
            unschedulable: waits_since.map(|it| self.input.age(it)),
            reverted: stopped == Some(Stopped::Unschedulable),
        }
    }

    /// Usage over hours. None if it is unknown, or that of another image.
    fn history(&self) -> Option<&[Point]> {
        let usage = self.input.usage.get(self.scaling.key.as_str())?;
        let points = match self.resource {
            Resource::Cpu => usage.cpu.as_deref(),
            Resource::Memory => usage.memory.as_deref(),
        };
        points.filter(|_| is_same_image(&usage.image, &self.scaling.image))
    }

    fn samples(&self, load: Option<&FunctionLoad>, history: Option<&[Point]>) -> Vec<UsageSample> {
        let history = history.unwrap_or_default();
        let recent: &[Point] = load.map_or(&[], |load| match self.resource {
            Resource::Cpu => &load.cpu,
            Resource::Memory => &load.memory,
        });
        let points: Vec<_> = match self.resource {
            // It counts by its peak in each interval, however many samples that has.
            Resource::Memory => history.iter().chain(recent).collect(),
            // Samples of the last minutes would outweigh those of hours.
            Resource::Cpu if history.len() >= MIN_SAMPLES => history.iter().collect(),
            Resource::Cpu => recent.iter().collect(),
        };
        let sample = |it: &Point| UsageSample { age: self.input.age(it.at), value: it.value };
        points.into_iter().map(sample).collect()
    }

    fn recommend(
        &self,
        samples: &[UsageSample],
        kills: Option<OomKills>,
        load: Option<&FunctionLoad>,
    ) -> Option<ResourceRecommendation> {
        let Allocation { request, limit } = self.of.specified;
        let input = ResourceInput {
            samples,
            history: self.input.options.resource_range.as_secs_f64(),
            current: self.of.current,
            // What the user wrote bounds what is applied, not what is recommended.
            specified: Allocation::default(),
            limit_ratio: request.zip(limit).map(|(request, limit)| limit / request),
            bounds: ResourceBounds { min: 0.0, max: self.of.max },
        };
        match self.resource {
            Resource::Memory => recommend_memory(&input, kills, GROWTH_HORIZON),
            Resource::Cpu => {
                let share = load.and_then(|load| mean(&load.throttling));
                let throttling = share.map(|share| Throttling { share, threshold: MAX_THROTTLING });
                recommend_cpu(&input, throttling)
            }
        }
    }

    /// The stored recommendation. An urgent raise starts from what instances have, which may be more.
    fn stored(&self, before: &Recommendation, found: &ResourceRecommendation) -> Allocation {
        if found.urgent && self.applies {
            return self.of.applied(before.target, before.limit);
        }
        Allocation { request: Some(before.target), limit: before.limit }
    }

    fn safeguards(&self, urgent: bool) -> ResourceSafeguards {
        let options = self.input.options;
        let cooldown = options.safeguards.cooldown;
        // The first step of a window may be missing.
        let history = options.resource_range.saturating_sub(USAGE_STEP);
        ResourceSafeguards {
            cooldown: if urgent { cooldown } else { cooldown.max(MIN_COOLDOWN) },
            stability: options.safeguards.stability,
            lowering_history: history.as_secs_f64(),
            max_step_down: options.safeguards.max_step_down,
            ..ResourceSafeguards::default()
        }
    }

    /// A raise of memory has no effect if an instance that has it is killed soon after it.
    fn effect(&self, enforced: &Enforced, raises: bool) -> EffectStatus {
        if self.rollout().reverted {
            return self.before.as_ref().and_then(|it| it.effect.clone()).unwrap_or_default();
        }
        let kill = oom::last_kill(enforced, self.scaling);
        let (Resource::Memory, Some(before), Some(kill), true) =
            (self.resource, &self.before, kill, self.is_applied)
        else {
            return EffectStatus::default();
        };
        let stored = before.effect.clone().unwrap_or_default();
        if self.input.age(kill.at.0) > QUIET {
            return EffectStatus::default();
        }
        if !raises || stored.reason().is_some() {
            return stored;
        }
        let applied = self.of.applied(before.target, before.limit);
        let had_it = kill.limit.is_none() || kill.limit >= applied.limit;
        let after = before.since.as_ref().map(|it| kill.at.0.duration_since(it.0).as_secs_f64());
        let window = self.input.options.effect_window.as_secs_f64();
        if !had_it || !after.is_some_and(|it| (0.0..=window).contains(&it)) {
            return EffectStatus::default();
        }
        let ineffective = stored.ineffective.saturating_add(1);
        let is_stopped = ineffective >= MAX_INEFFECTIVE;
        let effect = is_stopped.then(|| EffectStatus::stopped(Stopped::KilledAgain));
        EffectStatus { ineffective, ..effect.unwrap_or_default() }
    }

    /// The entry of status: the stored one unless it changes, so that nothing is written while nothing
    /// changes. None if the resource needs no change.
    fn recommendation(&self, outcome: &Outcome) -> Option<Recommendation> {
        let effect = Some(outcome.effect.clone()).filter(|it| *it != EffectStatus::default());
        let Some(ResourceChange { request, limit }) = outcome.change else {
            let before = self.before.as_ref()?;
            let since = self.input.corrected_since(before);
            return Some(Recommendation { since, effect, ..before.clone() });
        };
        Some(Recommendation {
            component: self.scaling.key.clone(),
            dimension: dimension(self.resource).as_str().to_owned(),
            target: request,
            limit,
            min: self.of.written.request,
            max: Some(self.of.max),
            since: Some(seconds(self.input.now)),
            basis: Some(outcome.found.basis.clone()),
            confidence: Some(round(outcome.found.confidence)),
            generation: Some(self.input.class.generation),
            made_for: Some(self.scaling.made_for.clone()),
            previous: self.previous(),
            effect,
            ..Recommendation::default()
        })
    }

    /// What instances had before a change that is made now. None if that is the specification.
    fn previous(&self) -> Option<PreviousValue> {
        let before = self.before.as_ref().filter(|_| self.applies && self.is_applied)?;
        if !self.rollout().complete {
            // Nothing says that the latest change can be scheduled.
            return before.previous.clone();
        }
        Some(PreviousValue { target: before.target, limit: before.limit })
    }

    /// Applies a recommendation. What instances get anyway isn't an entry.
    fn apply(&self, enforced: &mut Enforced, mut entry: Recommendation) -> Recommendation {
        let to = self.of.applied(entry.target, entry.limit);
        let from = find(&enforced.applied, &self.scaling.key, dimension(self.resource))
            .map_or(self.of.specified, |it| self.of.applied(it.target, it.limit));
        if from != to {
            // It may have been recommended long before enforcement was turned on.
            entry.since = Some(seconds(self.input.now));
            entry.previous = entry.previous.filter(|_| from != self.of.specified);
            enforced.record_change(NfrChange {
                at: seconds(self.input.now),
                component: entry.component.clone(),
                dimension: entry.dimension.clone(),
                from: from.request.unwrap_or_default(),
                to: to.request.unwrap_or_default(),
                basis: entry.basis.clone().unwrap_or_default(),
            });
        }
        if to == self.of.specified {
            enforced.remove_applied(&entry.component, &entry.dimension);
        } else {
            enforced.set_applied(entry.clone());
        }
        entry
    }

    fn live_decision(&self, outcome: &Outcome) -> LiveDecision {
        let Outcome { found, wait, .. } = outcome;
        let mode = if self.applies { EnforcementMode::Enforce } else { EnforcementMode::Observe };
        let written = self.of.written.request.filter(|it| *it > found.target);
        let held = if self.input.frozen && self.applies {
            Some((HeldBy::Freeze, "the end of the freeze".to_owned()))
        } else if self.is_foreign {
            let waits_for = "the removal of an autoscaler of another owner".to_owned();
            Some((HeldBy::ForeignAutoscaler, waits_for))
        } else if outcome.is_stopped {
            outcome.effect.reason().map(|it| (HeldBy::NoEffect, it.to_string()))
        } else if !outcome.is_known && !found.urgent {
            Some((HeldBy::History, "the usage of the last hours".to_owned()))
        } else if written.is_some() {
            let (resource, target) = (self.resource, found.target);
            let reason = WaitReason::Specification { resource, target };
            Some((reason.into(), reason.to_string()))
        } else {
            wait.map(|it| (it.into(), it.to_string()))
        };
        let (held_by, waits_for) = held.filter(|_| found.actionable).unzip();
        let next = wait.and_then(|it| it.remaining()).and_then(|it| self.input.later(it));
        LiveDecision {
            dimension: dimension(self.resource),
            mode,
            current: self.of.current.request.unwrap_or_default(),
            target: found.target,
            basis: found.basis.clone(),
            waits_for,
            held_by,
            next_change_at: next,
        }
    }
}

fn mean(points: &[Point]) -> Option<f64> {
    #[allow(clippy::cast_precision_loss)]
    let number = points.len() as f64;
    (!points.is_empty()).then(|| points.iter().map(|it| it.value).sum::<f64>() / number)
}
