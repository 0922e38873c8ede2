//! Merges a class with its ancestors, which are given nearest first.

use super::{ClassProblems, Origin, ResolvedBinding, Scope};
use crate::{
    limits,
    model::{Constraints, FunctionBinding, KeySpec, OClass, Reference, Requirements, StateSpec},
    names::quote,
};

pub(super) type Ancestor<'a> = (&'a Origin, &'a OClass);

/// The field that exceeds [`limits::MEMBERS`] with inherited and overridden entries, and their number.
pub(super) fn too_many(ancestors: &[Ancestor<'_>]) -> Option<(&'static str, usize)> {
    let count = |of: fn(&OClass) -> usize| ancestors.iter().map(|(_, class)| of(class)).sum();
    let keys = |class: &OClass| class.state_spec.as_ref().map_or(0, |it| it.key_specs.len());
    [
        ("functions", count(|class| class.functions.len())),
        ("refSpec", count(|class| class.ref_spec.len())),
        ("stateSpec", count(keys)),
    ]
    .into_iter()
    .find(|(_, count)| *count > limits::MEMBERS)
}

/// Items of ancestors come first; a nearer item replaces a farther one of the same name.
fn merge_by_name<T>(farthest_first: impl Iterator<Item = T>, name: impl Fn(&T) -> &str) -> Vec<T> {
    let mut all: Vec<T> = Vec::new();
    for item in farthest_first {
        match all.iter_mut().find(|it| name(it) == name(&item)) {
            Some(place) => *place = item,
            None => all.push(item),
        }
    }
    all
}

pub(super) fn bindings(
    scope: &Scope<'_>,
    ancestors: &[Ancestor<'_>],
    problems: &mut ClassProblems,
) -> Vec<ResolvedBinding> {
    let resolved = |of: &Origin, binding: &FunctionBinding| ResolvedBinding {
        name: binding.name.clone(),
        function: scope.key(&Scope::origin(&of.package, &binding.function)),
        access: binding.access,
        default_route: binding.default_route,
        immutable: binding.immutable,
        condition: binding.condition.clone(),
        trigger_on_state_change: binding.trigger_on_state_change,
        async_execution: binding.async_execution,
        origin: of.clone(),
    };
    let each = || {
        ancestors.iter().rev().flat_map(|(of, class)| {
            class.functions.iter().map(move |binding| resolved(of, binding))
        })
    };
    let mut all = merge_by_name(each(), |it| &it.name);
    for before in each().filter(|it| it.immutable) {
        let now = all.iter().find(|it| it.name == before.name);
        let same = |now: &ResolvedBinding| {
            ResolvedBinding { origin: before.origin.clone(), ..now.clone() } == before
        };
        if let Some(now) = now.filter(|now| !same(now)) {
            let message = format!(
                "the binding {} of {} is immutable and cannot be overridden in {}",
                quote(&before.name),
                before.origin,
                now.origin
            );
            problems.push((Some(before.name.clone()), message));
        }
    }
    keep_nearest_default_route(ancestors, &mut all, problems);
    all
}

/// A class has one default route: that of the nearest ancestor.
fn keep_nearest_default_route(
    ancestors: &[Ancestor<'_>],
    all: &mut [ResolvedBinding],
    problems: &mut ClassProblems,
) {
    let nearness = |binding: &ResolvedBinding| {
        ancestors.iter().position(|(of, _)| **of == binding.origin).unwrap_or(usize::MAX)
    };
    let defaults = all.iter().filter(|it| it.default_route);
    let Some(nearest) = defaults.min_by_key(|it| nearness(it)).map(|it| it.name.clone()) else {
        return;
    };
    for other in all.iter_mut().filter(|it| it.default_route && it.name != nearest) {
        if other.immutable {
            let message = format!(
                "the default route of {1} is the immutable binding {0}; {2} cannot replace it",
                quote(&other.name),
                other.origin,
                quote(&nearest)
            );
            problems.push((Some(nearest.clone()), message));
        }
        other.default_route = false;
    }
}

/// None where neither the class nor an ancestor has state.
pub(super) fn state(ancestors: &[Ancestor<'_>], problems: &mut ClassProblems) -> Option<StateSpec> {
    let specs = || ancestors.iter().filter_map(|(_, class)| class.state_spec.as_ref());
    specs().next()?;
    let each = || {
        ancestors.iter().rev().flat_map(|(of, class)| {
            let keys = class.state_spec.iter().flat_map(|it| &it.key_specs);
            keys.map(move |key| (*of, key))
        })
    };
    let mut keys: Vec<(&Origin, &KeySpec)> = Vec::new();
    for (of, key) in each() {
        match keys.iter_mut().find(|(_, it)| it.name == key.name) {
            Some((before, place)) => {
                if place.kind != key.kind {
                    let (name, kind) = (quote(&key.name), place.kind);
                    let message = format!(
                        "the state key {name} is {kind} in {before} but {} in {of}; its type cannot change",
                        key.kind
                    );
                    problems.push((None, message));
                }
                (*before, *place) = (of, key);
            }
            None => keys.push((of, key)),
        }
    }
    Some(StateSpec {
        key_specs: keys.into_iter().map(|(_, key)| key.clone()).collect(),
        default_provider: specs().find_map(|it| it.default_provider),
        consistency: specs().find_map(|it| it.consistency),
        persistence: specs().find_map(|it| it.persistence),
        access_patterns: specs()
            .map(|it| &it.access_patterns)
            .find(|it| !it.is_empty())
            .cloned()
            .unwrap_or_default(),
        access: specs().find_map(|it| it.access),
    })
}

/// The references with fully qualified classes, each with the class that declares it.
pub(super) fn references(ancestors: &[Ancestor<'_>]) -> Vec<(Origin, Reference)> {
    let each = ancestors.iter().rev().flat_map(|(of, class)| {
        class.ref_spec.iter().map(move |it| {
            let class = Scope::origin(&of.package, &it.class).to_string();
            ((*of).clone(), Reference { class, ..it.clone() })
        })
    });
    merge_by_name(each, |(_, it)| &it.name)
}

/// Each requirement is that of the nearest class that has it.
pub(super) fn requirements(ancestors: &[Ancestor<'_>]) -> Option<Requirements> {
    let all = || ancestors.iter().filter_map(|(_, class)| class.requirements.as_ref());
    all().next()?;
    // Two forms of one requirement, so both come from the same class.
    let available = all().find(|it| it.availability().is_some());
    Some(Requirements {
        throughput: all().find_map(|it| it.throughput),
        latency: all().find_map(|it| it.latency),
        availability: available.and_then(|it| it.availability),
        availability_pct: available.and_then(|it| it.availability_pct),
        consistency: all().find_map(|it| it.consistency),
    })
}

/// Each constraint is that of the nearest class that has it.
pub(super) fn constraints(ancestors: &[Ancestor<'_>]) -> Option<Constraints> {
    let all = || ancestors.iter().filter_map(|(_, class)| class.constraints.as_ref());
    all().next()?;
    Some(Constraints {
        hard_latency: all().find_map(|it| it.hard_latency),
        max_concurrency: all().find_map(|it| it.max_concurrency),
        circuit_breaker: all().find_map(|it| it.circuit_breaker),
    })
}
