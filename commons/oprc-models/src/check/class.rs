//! Classes, without what they inherit.

use oprc_condition::check_condition;

use super::{Declarations, requirements};
use crate::{
    diagnostics::FieldCursor,
    limits,
    model::{Access, OClass, OPackage, Provider, StateSpec},
    names::{NameKind, format_path, quote, split_reference},
};

pub(super) fn check(
    at: &FieldCursor<'_>,
    class: &OClass,
    package: &OPackage,
    known: &Declarations<'_>,
) {
    at.field("key").name(NameKind::Identifier, &class.key);
    requirements::check(at, class.requirements.as_ref(), class.constraints.as_ref());
    if let Some(state) = &class.state_spec {
        check_state_spec(&at.field("stateSpec"), state);
    }
    check_bindings(&at.field("functions"), class, known);
    check_references(&at.field("refSpec"), class, known);
    for (at, parent) in at.field("parents").unique(16, &class.parents, "", |it| it) {
        // A reference may name the package itself.
        let (of, key) = split_reference(parent);
        known.check_class(&at, if of == Some(package.name.as_str()) { key } else { parent });
    }
}

fn check_state_spec(at: &FieldCursor<'_>, state: &StateSpec) {
    for (at, key) in at.field("keySpecs").unique(256, &state.key_specs, "name", |it| &it.name) {
        at.field("name").name(NameKind::Identifier, &key.name);
    }
    let patterns = &state.access_patterns;
    let max = limits::ACCESS_PATTERNS;
    at.field("accessPatterns").distinct(max, patterns, "", |it| it.as_str());
    if state.default_provider == Some(Provider::None) {
        for (field, given) in [
            ("keySpecs", !state.key_specs.is_empty()),
            ("consistency", state.consistency.is_some()),
            ("persistence", state.persistence.is_some()),
            ("accessPatterns", !patterns.is_empty()),
            ("access", state.access.is_some()),
        ] {
            if given {
                at.field(field).add("has no effect: defaultProvider is NONE");
            }
        }
    }
}

fn check_bindings(at: &FieldCursor<'_>, class: &OClass, known: &Declarations<'_>) {
    for (at, binding) in at.unique(256, &class.functions, "name", |it| &it.name) {
        at.field("name").name(NameKind::Identifier, &binding.name);
        known.check_function(&at.field("function"), &binding.function);
        if let Some(condition) = &binding.condition {
            let at = at.field("condition");
            if let Err(error) = check_condition(condition) {
                at.add(error.to_string());
            }
        }
        if binding.default_route && binding.access == Some(Access::Private) {
            at.field("defaultRoute")
                .add("a PRIVATE binding cannot be the default route: no client could call it");
        }
        if binding.async_execution && !binding.trigger_on_state_change {
            at.field("asyncExecution").add_with_hint(
                "applies only to calls triggered by a state change",
                "set triggerOnStateChange, or make the call asynchronous in the client",
            );
        }
    }
    let mut defaults = at.items(&class.functions).filter(|(_, it)| it.default_route);
    if let Some((at, _)) = defaults.nth(1) {
        at.field("defaultRoute").add("another binding of the class is already the default route");
    }
}

fn check_references(at: &FieldCursor<'_>, class: &OClass, known: &Declarations<'_>) {
    for (at, reference) in at.unique(256, &class.ref_spec, "name", |it| &it.name) {
        let name = &reference.name;
        at.field("name").name(NameKind::Identifier, name);
        let mut state_keys = class.state_spec.iter().flat_map(|state| &state.key_specs);
        if state_keys.any(|key| key.name == *name) {
            at.field("name").add(format!("{} is already the name of a state key", quote(name)));
        }
        known.check_class(&at.field("class"), &reference.class);
    }
}

/// Rejects classes that inherit from themselves, and shows the cycle.
pub(super) fn check_cycles(at: &FieldCursor<'_>, package: &OPackage) {
    let own_parent = |parent| match split_reference(parent) {
        (None, key) => Some(key),
        (Some(of), key) => (of == package.name).then_some(key),
    };
    let edges: Vec<(&str, Vec<&str>)> = package
        .classes
        .iter()
        .map(|class| {
            let parents = class.parents.iter().filter_map(|it| own_parent(it));
            (class.key.as_str(), parents.collect())
        })
        .collect();
    for (index, cycle) in super::flow::find_cycles(&edges) {
        let message = format!("the class inherits from itself: {}", format_path(&cycle));
        at.index(index).field("parents").add(message);
    }
}
