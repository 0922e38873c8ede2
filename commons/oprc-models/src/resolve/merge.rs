//! What a class has of its own and of those that it inherits from, which come nearest first.

use super::{Origin, ResolvedBinding, Scope};
use crate::{
    model::{Constraints, FunctionBinding, KeySpec, OClass, Reference, Requirements, StateSpec},
    names::shown,
};

/// A class and where it comes from.
pub(super) type Ancestor<'a> = (&'a Origin, &'a OClass);

/// How many bindings, keys and references a class may have, with what it inherits and replaces.
pub(super) const MOST: usize = 512;

/// What a class has too many of, and how many.
pub(super) fn too_many(ancestors: &[Ancestor<'_>]) -> Option<(&'static str, usize)> {
    let count = |of: fn(&OClass) -> usize| ancestors.iter().map(|(_, class)| of(class)).sum();
    let keys = |class: &OClass| class.state_spec.as_ref().map_or(0, |it| it.key_specs.len());
    [
        ("functions", count(|class| class.functions.len())),
        ("refSpec", count(|class| class.ref_spec.len())),
        ("stateSpec", count(keys)),
    ]
    .into_iter()
    .find(|(_, count)| *count > MOST)
}

/// Those of ancestors first, and what is nearer in place of what is farther.
fn by_name<T>(farthest_first: impl Iterator<Item = T>, name: impl Fn(&T) -> &str) -> Vec<T> {
    let mut all: Vec<T> = Vec::new();
    for item in farthest_first {
        match all.iter_mut().find(|it| name(it) == name(&item)) {
            Some(place) => *place = item,
            None => all.push(item),
        }
    }
    all
}

/// The bindings, and what is wrong with them.
pub(super) fn bindings(
    scope: &Scope<'_>,
    ancestors: &[Ancestor<'_>],
    faults: &mut Vec<(Option<String>, String)>,
) -> Vec<ResolvedBinding> {
    let resolved = |of: &Origin, binding: &FunctionBinding| ResolvedBinding {
        name: binding.name.clone(),
        function: scope.key(&Scope::origin(&of.package, &binding.function)),
        access: binding.access,
        default_route: binding.default_route,
        immutable: binding.immutable,
        trigger_on_state_change: binding.trigger_on_state_change,
        async_execution: binding.async_execution,
        origin: of.clone(),
    };
    let each = || {
        ancestors.iter().rev().flat_map(|(of, class)| {
            class.functions.iter().map(move |binding| resolved(of, binding))
        })
    };
    let mut all = by_name(each(), |it| &it.name);
    for before in each().filter(|it| it.immutable) {
        let now = all.iter().find(|it| it.name == before.name);
        let same = |now: &ResolvedBinding| {
            ResolvedBinding { origin: before.origin.clone(), ..now.clone() } == before
        };
        if let Some(now) = now.filter(|now| !same(now)) {
            let message = format!(
                "the binding {} of {} is immutable, and {} has another in its place",
                shown(&before.name),
                before.origin,
                now.origin
            );
            faults.push((Some(before.name.clone()), message));
        }
    }
    nearest_default(ancestors, &mut all, faults);
    all
}

/// A class has one default route: the nearest.
fn nearest_default(
    ancestors: &[Ancestor<'_>],
    all: &mut [ResolvedBinding],
    faults: &mut Vec<(Option<String>, String)>,
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
                "the binding {} of {} is immutable and the default route, and so is {}",
                shown(&other.name),
                other.origin,
                shown(&nearest)
            );
            faults.push((Some(nearest.clone()), message));
        }
        other.default_route = false;
    }
}

/// What is kept, where anybody keeps anything.
pub(super) fn state(
    ancestors: &[Ancestor<'_>],
    faults: &mut Vec<(Option<String>, String)>,
) -> Option<StateSpec> {
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
                    let (name, kind) = (shown(&key.name), place.kind);
                    let message = format!(
                        "the key {name} is {kind} in {before} and {} in {of}: a type can't change",
                        key.kind
                    );
                    faults.push((None, message));
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
    })
}

/// The references, each with the class that it comes from, by package and key.
pub(super) fn references(ancestors: &[Ancestor<'_>]) -> Vec<(Origin, Reference)> {
    let each = ancestors.iter().rev().flat_map(|(of, class)| {
        class.ref_spec.iter().map(move |it| {
            let class = Scope::origin(&of.package, &it.class).to_string();
            ((*of).clone(), Reference { class, ..it.clone() })
        })
    });
    by_name(each, |(_, it)| &it.name)
}

/// What is required; each requirement is taken from the nearest that has it.
pub(super) fn requirements(ancestors: &[Ancestor<'_>]) -> Option<Requirements> {
    let all = || ancestors.iter().filter_map(|(_, class)| class.requirements.as_ref());
    all().next()?;
    // Both say the same thing, so they go together.
    let available = all().find(|it| it.availability().is_some());
    Some(Requirements {
        throughput: all().find_map(|it| it.throughput),
        latency: all().find_map(|it| it.latency),
        availability: available.and_then(|it| it.availability),
        availability_pct: available.and_then(|it| it.availability_pct),
        consistency: all().find_map(|it| it.consistency),
    })
}

/// What may not be exceeded; each is taken from the nearest that has it.
pub(super) fn constraints(ancestors: &[Ancestor<'_>]) -> Option<Constraints> {
    let all = || ancestors.iter().filter_map(|(_, class)| class.constraints.as_ref());
    all().next()?;
    Some(Constraints {
        hard_latency: all().find_map(|it| it.hard_latency),
        max_concurrency: all().find_map(|it| it.max_concurrency),
    })
}
