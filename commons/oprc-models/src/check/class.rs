//! Classes, as far as they can be checked without what they inherit.

use std::collections::BTreeSet;

use super::{many, name, package::Known, reference, requirements, unique};
use crate::{
    fault::{Faults, Path},
    model::{Access, FunctionBinding, OClass, OPackage, Provider, StateSpec},
    names::{Name, shown, split, way},
};

pub(super) fn check(
    faults: &mut Faults,
    path: &Path,
    class: &OClass,
    package: &OPackage,
    known: &Known<'_>,
) {
    name(faults, &path.field("key"), Name::Word, &class.key);
    requirements::requirements(faults, &path.field("requirements"), class.requirements.as_ref());
    requirements::constraints(faults, &path.field("constraints"), class.constraints.as_ref());
    if let Some(state) = &class.state_spec {
        state_spec(faults, &path.field("stateSpec"), state);
    }
    bindings(faults, &path.field("functions"), class, known);
    references(faults, &path.field("refSpec"), class, known);
    let parents = path.field("parents");
    many(faults, &parents, &class.parents, 16);
    unique(faults, &parents, "", class.parents.iter().map(String::as_str));
    for (at, parent) in class.parents.iter().enumerate() {
        let path = parents.index(at);
        // A package may name itself.
        let (of, key) = split(parent);
        let parent = if of == Some(package.name.as_str()) { key } else { parent };
        let (own, others) = (&known.classes, &known.dependencies);
        reference(faults, &path, "class", Name::Word, parent, own, others);
    }
}

fn state_spec(faults: &mut Faults, path: &Path, state: &StateSpec) {
    let keys = path.field("keySpecs");
    many(faults, &keys, &state.key_specs, 256);
    unique(faults, &keys, "name", state.key_specs.iter().map(|it| it.name.as_str()));
    for (at, key) in state.key_specs.iter().enumerate() {
        name(faults, &keys.index(at).field("name"), Name::Word, &key.name);
    }
    let patterns = path.field("accessPatterns");
    many(faults, &patterns, &state.access_patterns, 8);
    unique(faults, &patterns, "", state.access_patterns.iter().map(|it| it.as_str()));
    if state.default_provider == Some(Provider::None) {
        for (field, given) in [
            ("keySpecs", !state.key_specs.is_empty()),
            ("consistency", state.consistency.is_some()),
            ("persistence", state.persistence.is_some()),
            ("accessPatterns", !state.access_patterns.is_empty()),
        ] {
            if given {
                faults.add(&path.field(field), "means nothing, as defaultProvider is NONE");
            }
        }
    }
}

fn bindings(faults: &mut Faults, path: &Path, class: &OClass, known: &Known<'_>) {
    many(faults, path, &class.functions, 256);
    unique(faults, path, "name", class.functions.iter().map(|it| it.name.as_str()));
    for (at, binding) in class.functions.iter().enumerate() {
        let path = path.index(at);
        name(faults, &path.field("name"), Name::Word, &binding.name);
        let (place, to) = (path.field("function"), &binding.function);
        let (own, others) = (&known.functions, &known.dependencies);
        reference(faults, &place, "function", Name::Function, to, own, others);
        check_binding(faults, &path, binding);
    }
    let default = |binding: &&FunctionBinding| binding.default_route;
    if let Some(second) = class.functions.iter().filter(default).nth(1) {
        let at = class.functions.iter().position(|it| it.name == second.name).unwrap_or_default();
        faults.add(
            &path.index(at).field("defaultRoute"),
            "another binding of the class is the default route already",
        );
    }
}

fn check_binding(faults: &mut Faults, path: &Path, binding: &FunctionBinding) {
    if binding.default_route && binding.access == Some(Access::Private) {
        faults.add(&path.field("defaultRoute"), "nobody could call it, as access is PRIVATE");
    }
    if binding.async_execution && !binding.trigger_on_state_change {
        faults.hint(
            &path.field("asyncExecution"),
            "only calls that a change of state triggers can be left without waiting for them",
            "say triggerOnStateChange too, or let the caller not wait",
        );
    }
}

fn references(faults: &mut Faults, path: &Path, class: &OClass, known: &Known<'_>) {
    many(faults, path, &class.ref_spec, 256);
    unique(faults, path, "name", class.ref_spec.iter().map(|it| it.name.as_str()));
    let keys: BTreeSet<&str> = class
        .state_spec
        .iter()
        .flat_map(|state| &state.key_specs)
        .map(|key| key.name.as_str())
        .collect();
    for (at, to) in class.ref_spec.iter().enumerate() {
        let path = path.index(at);
        name(faults, &path.field("name"), Name::Word, &to.name);
        if keys.contains(to.name.as_str()) {
            faults.add(&path.field("name"), format!("{} is a key of the state", shown(&to.name)));
        }
        let (own, others) = (&known.classes, &known.dependencies);
        reference(faults, &path.field("class"), "class", Name::Word, &to.class, own, others);
    }
}

/// Refuses classes that inherit from themselves, and shows how.
pub(super) fn cycles(faults: &mut Faults, path: &Path, package: &OPackage) {
    let own = |parent: &&str| split(parent).0.is_none_or(|of| of == package.name);
    let edges: Vec<(&str, Vec<&str>)> = package
        .classes
        .iter()
        .map(|class| {
            let parents = class.parents.iter().map(String::as_str).filter(own);
            (class.key.as_str(), parents.map(|it| split(it).1).collect())
        })
        .collect();
    for (at, cycle) in super::flow::cycles_of(&edges) {
        let message = format!("the class inherits from itself: {}", way(&cycle));
        faults.add(&path.index(at).field("parents"), message);
    }
}
