//! Classes, without what they inherit.

use std::collections::BTreeSet;

use super::{check_count, check_name, check_unique, declarations::Declarations, requirements};
use crate::{
    diagnostics::{Diagnostics, Path},
    model::{Access, FunctionBinding, OClass, OPackage, Provider, StateSpec},
    names::{NameKind, format_path, quote, split_reference},
};

pub(super) fn check(
    diagnostics: &mut Diagnostics,
    path: &Path,
    class: &OClass,
    package: &OPackage,
    known: &Declarations<'_>,
) {
    check_name(diagnostics, &path.field("key"), NameKind::Identifier, &class.key);
    requirements::check(diagnostics, path, class.requirements.as_ref(), class.constraints.as_ref());
    if let Some(state) = &class.state_spec {
        check_state_spec(diagnostics, &path.field("stateSpec"), state);
    }
    check_bindings(diagnostics, &path.field("functions"), class, known);
    check_references(diagnostics, &path.field("refSpec"), class, known);
    let parents = path.field("parents");
    check_count(diagnostics, &parents, class.parents.len(), 16);
    check_unique(diagnostics, &parents, "", class.parents.iter().map(String::as_str));
    for (index, parent) in class.parents.iter().enumerate() {
        // A reference may name the package itself.
        let (of, key) = split_reference(parent);
        let parent = if of == Some(package.name.as_str()) { key } else { parent };
        known.check_class(diagnostics, &parents.index(index), parent);
    }
}

fn check_state_spec(diagnostics: &mut Diagnostics, path: &Path, state: &StateSpec) {
    let keys = path.field("keySpecs");
    check_count(diagnostics, &keys, state.key_specs.len(), 256);
    check_unique(diagnostics, &keys, "name", state.key_specs.iter().map(|it| it.name.as_str()));
    for (index, key) in state.key_specs.iter().enumerate() {
        let path = keys.index(index).field("name");
        check_name(diagnostics, &path, NameKind::Identifier, &key.name);
    }
    let patterns = path.field("accessPatterns");
    check_count(diagnostics, &patterns, state.access_patterns.len(), 8);
    check_unique(diagnostics, &patterns, "", state.access_patterns.iter().map(|it| it.as_str()));
    if state.default_provider == Some(Provider::None) {
        for (field, given) in [
            ("keySpecs", !state.key_specs.is_empty()),
            ("consistency", state.consistency.is_some()),
            ("persistence", state.persistence.is_some()),
            ("accessPatterns", !state.access_patterns.is_empty()),
        ] {
            if given {
                diagnostics.add(&path.field(field), "has no effect: defaultProvider is NONE");
            }
        }
    }
}

fn check_bindings(
    diagnostics: &mut Diagnostics,
    path: &Path,
    class: &OClass,
    known: &Declarations<'_>,
) {
    check_count(diagnostics, path, class.functions.len(), 256);
    check_unique(diagnostics, path, "name", class.functions.iter().map(|it| it.name.as_str()));
    for (index, binding) in class.functions.iter().enumerate() {
        let path = path.index(index);
        check_name(diagnostics, &path.field("name"), NameKind::Identifier, &binding.name);
        known.check_function(diagnostics, &path.field("function"), &binding.function);
        check_binding(diagnostics, &path, binding);
    }
    let mut defaults = class.functions.iter().enumerate().filter(|(_, it)| it.default_route);
    if let Some((index, _)) = defaults.nth(1) {
        diagnostics.add(
            &path.index(index).field("defaultRoute"),
            "another binding of the class is already the default route",
        );
    }
}

fn check_binding(diagnostics: &mut Diagnostics, path: &Path, binding: &FunctionBinding) {
    if binding.default_route && binding.access == Some(Access::Private) {
        let message = "a PRIVATE binding cannot be the default route: no client could call it";
        diagnostics.add(&path.field("defaultRoute"), message);
    }
    if binding.async_execution && !binding.trigger_on_state_change {
        diagnostics.add_with_hint(
            &path.field("asyncExecution"),
            "applies only to calls triggered by a state change",
            "set triggerOnStateChange, or make the call asynchronous in the client",
        );
    }
}

fn check_references(
    diagnostics: &mut Diagnostics,
    path: &Path,
    class: &OClass,
    known: &Declarations<'_>,
) {
    check_count(diagnostics, path, class.ref_spec.len(), 256);
    check_unique(diagnostics, path, "name", class.ref_spec.iter().map(|it| it.name.as_str()));
    let state_keys: BTreeSet<&str> = class
        .state_spec
        .iter()
        .flat_map(|state| &state.key_specs)
        .map(|key| key.name.as_str())
        .collect();
    for (index, reference) in class.ref_spec.iter().enumerate() {
        let path = path.index(index);
        let name = &reference.name;
        check_name(diagnostics, &path.field("name"), NameKind::Identifier, name);
        if state_keys.contains(name.as_str()) {
            let message = format!("{} is already the name of a state key", quote(name));
            diagnostics.add(&path.field("name"), message);
        }
        known.check_class(diagnostics, &path.field("class"), &reference.class);
    }
}

/// Rejects classes that inherit from themselves, and shows the cycle.
pub(super) fn check_cycles(diagnostics: &mut Diagnostics, path: &Path, package: &OPackage) {
    let own = |parent: &&str| split_reference(parent).0.is_none_or(|of| of == package.name);
    let edges: Vec<(&str, Vec<&str>)> = package
        .classes
        .iter()
        .map(|class| {
            let parents = class.parents.iter().map(String::as_str).filter(own);
            (class.key.as_str(), parents.map(|it| split_reference(it).1).collect())
        })
        .collect();
    for (index, cycle) in super::flow::find_cycles(&edges) {
        let message = format!("the class inherits from itself: {}", format_path(&cycle));
        diagnostics.add(&path.index(index).field("parents"), message);
    }
}
