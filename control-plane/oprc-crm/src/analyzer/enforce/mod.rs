//! From measurements to what enforcement applies. Pure: what it remembers is in status.
//!
//! A class that is only observed gets the same recommendations as one that is enforced, under the same
//! safeguards; they are just not applied. [`replicas`] decides on the number of instances,
//! [`resources`] on their CPU and memory, for which [`oom`] keeps the out-of-memory kills, and
//! [`template`] on what a function of template `unified` runs as.

mod oom;
mod replicas;
mod resources;
mod template;

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};
use oprc_nfr::{Safeguards, migration::WorkloadKind, resources::Resource};
use oprc_unit::spec::{Dimension, EnforcementMode};

use super::evaluate::{FunctionLoad, Instances, requested_mode};
use crate::{
    cache::OomKill,
    crd::{GRID_KEY, NfrChange, OomKillStatus, Recommendation},
    observations::FunctionObservation,
    reason::Reason,
    reconcile::{EventRecord, ObservedClass, scaling::FunctionScaling},
    signals::{ComponentUsage, PodRef},
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
    /// History of usage that lowering CPU or memory needs.
    pub resource_range: Duration,
    /// Time after a change in which its effect shows.
    pub effect_window: Duration,
}

/// What a pass knows about a class.
pub(super) struct ClassInput<'a> {
    pub(super) class: &'a ObservedClass,
    pub(super) loads: &'a BTreeMap<String, FunctionLoad>,
    pub(super) instances: &'a BTreeMap<String, Instances>,
    /// By function; that of the data grid by [`GRID_KEY`].
    pub(super) usage: BTreeMap<&'a str, &'a ComponentUsage>,
    /// Of pods of the class.
    pub(super) oom_kills: &'a [(PodRef, OomKill)],
    /// Empty if the class gets no recommendations.
    pub(super) scaling: &'a [FunctionScaling],
    pub(super) options: &'a EnforcementOptions,
    pub(super) frozen: bool,
    pub(super) now: Timestamp,
}

impl ClassInput<'_> {
    /// Whether decisions about a dimension are applied.
    fn enforces(&self, dimension: Dimension) -> bool {
        requested_mode(self.class) == EnforcementMode::Enforce
            && self.options.enabled
            && may(self.class, self.options, dimension)
    }

    /// Seconds since the latest change of an entry. A time in the future is that of a clock that was
    /// wrong: the change counts as just made.
    fn since_change(&self, entry: &Recommendation) -> Option<f64> {
        entry.since.as_ref().map(|it| self.age(it.0))
    }

    /// Seconds, at least 0.
    fn age(&self, at: Timestamp) -> f64 {
        self.now.duration_since(at).max(SignedDuration::ZERO).as_secs_f64()
    }

    /// The time of the latest change, which is now if the stored one is in the future.
    fn corrected_since(&self, entry: &Recommendation) -> Option<Time> {
        let is_future = entry.since.as_ref().is_some_and(|it| it.0 > self.now);
        if is_future { Some(seconds(self.now)) } else { entry.since.clone() }
    }

    fn later(&self, seconds: f64) -> Option<Timestamp> {
        self.now.checked_add(SignedDuration::try_from_secs_f64(seconds).ok()?).ok()
    }
}

/// The part of a status that enforcement owns.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Enforced {
    pub(super) recommendations: Vec<Recommendation>,
    pub(super) applied: Vec<Recommendation>,
    pub(super) last_applied_at: Option<Time>,
    pub(super) history: Vec<NfrChange>,
    pub(super) oom_kills: Vec<OomKillStatus>,
    /// `NfrEnforced`: its status, reason and message. None unless enforcement is requested.
    pub(super) condition: Option<(bool, Reason, String)>,
    /// Events about out-of-memory kills that status doesn't know yet.
    pub(super) new_kills: Vec<EventRecord>,
    /// The changes of this pass.
    pub(super) changes: Vec<NfrChange>,
}

impl Enforced {
    /// The Events of the changes of this pass.
    pub(super) fn events(&self) -> impl Iterator<Item = EventRecord> {
        self.changes.iter().map(|change| {
            let NfrChange { component, dimension, from, to, basis, .. } = change;
            let show = |value: f64| match Dimension::parse(dimension) {
                Some(Dimension::Memory) => Resource::Memory.show(value).to_string(),
                Some(Dimension::Cpu) => Resource::Cpu.show(value).to_string(),
                Some(Dimension::Template) => WorkloadKind::of_value(value).as_str().to_owned(),
                Some(Dimension::Replicas) | None => value.to_string(),
            };
            let note = format!("{component}: {dimension} {} → {}: {basis}", show(*from), show(*to));
            EventRecord { warning: false, reason: Reason::NFRApplied, note }
        })
    }

    fn set_recommendation(&mut self, entry: Recommendation) {
        let is_same = |it: &&mut Recommendation| {
            it.component == entry.component && it.dimension == entry.dimension
        };
        match self.recommendations.iter_mut().find(is_same) {
            Some(stored) => *stored = entry,
            None => self.recommendations.push(entry),
        }
    }

    fn set_applied(&mut self, entry: Recommendation) {
        self.remove_applied(&entry.component, &entry.dimension);
        self.applied.push(entry);
        self.applied.sort_by(|left, right| {
            (&left.component, &left.dimension).cmp(&(&right.component, &right.dimension))
        });
    }

    fn remove_applied(&mut self, component: &str, dimension: &str) {
        self.applied.retain(|it| it.component != component || it.dimension != dimension);
    }

    fn record_change(&mut self, change: NfrChange) {
        self.last_applied_at = Some(change.at.clone());
        self.history.insert(0, change.clone());
        bound_history(&mut self.history);
        self.changes.push(change);
    }
}

/// Drops the oldest changes, but not the last migration of a component as long as there are others:
/// whether a migration was applied is read from the history.
fn bound_history(history: &mut Vec<NfrChange>) {
    while history.len() > MAX_HISTORY {
        let is_migration = |it: &NfrChange| it.dimension == Dimension::Template.as_str();
        let is_last_migration = |at: usize, it: &NfrChange| {
            let mut newer = history.iter().take(at);
            is_migration(it)
                && !newer.any(|newer| is_migration(newer) && newer.component == it.component)
        };
        let oldest = history.iter().enumerate().rposition(|(at, it)| !is_last_migration(at, it));
        history.remove(oldest.unwrap_or(history.len() - 1));
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
        oom_kills: status.oom_kills.clone(),
        ..Enforced::default()
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
    input: &ClassInput<'_>,
    functions: &mut BTreeMap<String, FunctionObservation>,
) -> Enforced {
    let mut enforced = carry(input.class, input.options);
    let mode = requested_mode(input.class);
    if mode == EnforcementMode::Off {
        return enforced;
    }
    oom::update(&mut enforced, input);
    let is_current = |it: &Recommendation| is_current(it, functions, input.scaling);
    enforced.recommendations.retain(is_current);
    enforced.applied.retain(is_current);
    let mut problems = Problems { frozen: input.frozen, ..Problems::default() };
    for scaling in input.scaling {
        let Some(observation) = functions.get_mut(&scaling.key) else { continue };
        resources::decide(&mut enforced, &mut problems, input, scaling, observation);
        if scaling.key != GRID_KEY {
            replicas::decide(&mut enforced, &mut problems, input, scaling, observation);
            template::decide(&mut enforced, &mut problems, input, scaling, observation);
        }
    }
    if mode == EnforcementMode::Enforce {
        let is_enforced = Dimension::ALL.into_iter().any(|it| input.enforces(it));
        enforced.condition = Some(problems.condition(input.options, is_enforced));
    }
    enforced
}

/// False for functions that are gone, and for what a decision was made for and is no longer there: a
/// requirement, the image and resources, or the choice of a shape.
fn is_current(
    entry: &Recommendation,
    functions: &BTreeMap<String, FunctionObservation>,
    scaling: &[FunctionScaling],
) -> bool {
    let Some(scaling) = scaling.iter().find(|it| it.key == entry.component) else { return false };
    let observation = functions.get(&entry.component);
    match Dimension::parse(&entry.dimension) {
        Some(Dimension::Replicas) => observation.is_some_and(replicas::has_load_requirement),
        Some(Dimension::Memory | Dimension::Cpu) => {
            entry.made_for.as_ref().is_some_and(|it| *it == scaling.made_for)
        }
        Some(Dimension::Template) => scaling.alternative_shape.is_some(),
        None => false,
    }
}

fn find<'a>(
    recommendations: &'a [Recommendation],
    component: &str,
    dimension: Dimension,
) -> Option<&'a Recommendation> {
    let mut own = recommendations.iter().filter(|it| it.component == component);
    own.find(|it| it.dimension == dimension.as_str())
}

/// The API server stores times with seconds.
fn seconds(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// What keeps enforcement from meeting requirements.
#[derive(Default)]
struct Problems {
    frozen: bool,
    foreign: Vec<String>,
    missing: Vec<String>,
    unschedulable: Vec<String>,
    stopped: Vec<String>,
    limited: Vec<String>,
}

impl Problems {
    /// The first that applies.
    fn condition(&self, options: &EnforcementOptions, is_enforced: bool) -> (bool, Reason, String) {
        let join = |all: &[String]| all.join("; ");
        if !options.enabled {
            let message =
                "features.nfr_enforcement of CRM is off: recommendations are only reported";
            (false, Reason::EnforcementDisabled, message.to_owned())
        } else if !is_enforced {
            let message = "enforcement.dimensions of CRM has none of the class's dimensions: \
                           recommendations are only reported";
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
        } else if !self.unschedulable.is_empty() {
            (false, Reason::Unschedulable, join(&self.unschedulable))
        } else if !self.stopped.is_empty() {
            (false, Reason::NoEffect, join(&self.stopped))
        } else if !self.limited.is_empty() {
            (false, Reason::LimitReached, join(&self.limited))
        } else {
            (true, Reason::Enforced, "requirements are enforced".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(component: &str, dimension: Dimension, to: u32) -> NfrChange {
        NfrChange {
            at: Time(Timestamp::UNIX_EPOCH),
            component: component.to_owned(),
            dimension: dimension.as_str().to_owned(),
            from: 0.0,
            to: f64::from(to),
            basis: String::new(),
        }
    }

    #[test]
    fn the_history_keeps_the_last_migration_of_each_component() {
        let mut enforced = Enforced::default();
        for (component, to) in [("a", 1), ("b", 2), ("a", 3)] {
            enforced.record_change(change(component, Dimension::Template, to));
        }
        for to in 0..100 {
            enforced.record_change(change("a", Dimension::Replicas, to));
            assert!(enforced.history.len() <= MAX_HISTORY);
        }
        let migrations: Vec<_> =
            enforced.history.iter().filter(|it| it.dimension == "template").collect();
        assert_eq!(
            migrations,
            [&change("a", Dimension::Template, 3), &change("b", Dimension::Template, 2)]
        );
        assert_eq!(enforced.history[0], change("a", Dimension::Replicas, 99));
        for number in 0..100 {
            enforced.record_change(change(&number.to_string(), Dimension::Template, 1));
        }
        assert_eq!(enforced.history.len(), MAX_HISTORY);
    }
}
