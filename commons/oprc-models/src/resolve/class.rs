//! One class after another.

use super::{
    Origin, ResolvedBinding, ResolvedClass, ResolvedFunction, Scope, functions,
    lineage::{Lineages, Trouble},
    merge,
};
use crate::{
    fault::{Faults, Path},
    model::OClass,
    names::shown,
};

/// How many functions a unit has room for.
const FUNCTIONS: usize = 64;
/// How many bindings each of them.
const BINDINGS: usize = 64;

/// What is wrong: of which binding, and what.
type Notes = Vec<(Option<String>, String)>;

/// The classes of a package that can be settled; what is wrong with the others is noted.
pub(super) fn all(faults: &mut Faults, path: &Path, scope: &Scope<'_>) -> Vec<ResolvedClass> {
    let mut lineages = Lineages::default();
    let mut shared = functions::Shared::new();
    let mut resolved = Vec::new();
    for (at, class) in scope.own.classes.iter().enumerate() {
        let path = path.index(at);
        let origin = Origin { package: scope.own.name.clone(), key: class.key.clone() };
        let lineage = match lineages.of(&origin, scope) {
            Ok(lineage) => lineage,
            Err(trouble) => {
                let (Trouble::Own(message) | Trouble::Inherited(message)) = trouble;
                faults.add(&path.field("parents"), message);
                continue;
            }
        };
        let ancestors: Vec<(&Origin, &OClass)> =
            lineage.iter().filter_map(|it| Some((it, scope.class(it)?))).collect();
        if let Some((field, count)) = merge::too_many(&ancestors) {
            let message =
                format!("{count} with what is inherited, and {} are allowed", merge::MOST);
            faults.add(&path.field(field), message);
            continue;
        }
        let mut notes = Notes::new();
        let found = one(scope, &mut shared, class, &ancestors, &mut notes);
        for (binding, message) in notes {
            let own =
                binding.and_then(|name| class.functions.iter().position(|it| it.name == name));
            let place = own.map_or_else(|| path.clone(), |at| path.field("functions").index(at));
            faults.add(&place, message);
        }
        for (at, reference) in class.ref_spec.iter().enumerate() {
            if scope.class(&Scope::origin(&scope.own.name, &reference.class)).is_none() {
                let message = format!("there is no class {}", shown(&reference.class));
                faults.add(&path.field("refSpec").index(at).field("class"), message);
            }
        }
        resolved.push(found);
    }
    resolved
}

fn one(
    scope: &Scope<'_>,
    shared: &mut functions::Shared,
    class: &OClass,
    ancestors: &[(&Origin, &OClass)],
    notes: &mut Notes,
) -> ResolvedClass {
    let bindings = merge::bindings(scope, ancestors, notes);
    let state_spec = merge::state(ancestors, notes);
    let references = merge::references(ancestors);
    let functions = functions::needed(scope, shared, &bindings, notes);
    functions::macros(&bindings, &functions, state_spec.as_ref(), &references, notes);
    let resolved = ResolvedClass {
        key: class.key.clone(),
        name: class.name.clone(),
        description: class.description.clone(),
        lineage: ancestors.iter().map(|(of, _)| (*of).clone()).collect(),
        state_type: ancestors.iter().find_map(|(_, it)| it.state_type).unwrap_or_default(),
        state_spec,
        references: references.into_iter().map(|(_, reference)| reference).collect(),
        bindings,
        functions,
        requirements: merge::requirements(ancestors),
        constraints: merge::constraints(ancestors),
        disabled: class.disabled,
        mark_for_removal: class.mark_for_removal,
    };
    // What isn't deployed may lack what those have that inherit from it.
    if !class.disabled {
        deployable(&resolved, notes);
    }
    resolved
}

/// What must hold of a class that is deployed: what its unit has room for, and that nothing in it
/// would go unheeded.
fn deployable(class: &ResolvedClass, notes: &mut Notes) {
    if class.functions.len() > FUNCTIONS {
        let message =
            format!("needs {} functions, and {FUNCTIONS} are allowed", class.functions.len());
        notes.push((None, message));
    }
    for function in &class.functions {
        let names = class.bindings.iter().filter(|it| it.function == function.key).count();
        if names > BINDINGS {
            let key = shown(&function.key);
            notes.push((None, format!("{key} has {names} names, and {BINDINGS} are allowed")));
        }
    }
    for binding in &class.bindings {
        let function = class.function(&binding.function);
        if binding.trigger_on_state_change {
            trigger(class, binding, function, notes);
        }
        if !class.has_grid() && function.is_some_and(|it| it.function.odgm.is_some()) {
            let message = format!(
                "the function {} says how it uses the data grid, and the class has no state",
                shown(&binding.function)
            );
            notes.push((Some(binding.name.clone()), message));
        }
    }
    if class.state_spec.is_none() && class.state_type != crate::StateType::Normal {
        let message = format!("is a {}, and has no stateSpec", class.state_type);
        notes.push((None, message));
    }
}

fn trigger(
    class: &ResolvedClass,
    binding: &ResolvedBinding,
    function: Option<&ResolvedFunction>,
    notes: &mut Notes,
) {
    let mut note = |message: &str| {
        notes.push((Some(binding.name.clone()), format!("{}: {message}", shown(&binding.name))));
    };
    if !class.has_grid() {
        note("changes of state can't call it, as the class has no state");
    }
    if function.is_some_and(|it| !it.function.runs()) {
        note("changes of state can only call what runs in a container");
    }
}
