//! Resolves the classes of a package.

use super::{
    ClassProblems, Origin, ResolvedBinding, ResolvedClass, ResolvedFunction, Scope, functions,
    lineage::Lineages, merge,
};
use crate::{
    diagnostics::{Diagnostics, Path},
    model::OClass,
    names::quote,
};

/// Maximum number of functions in a deployment unit.
const MAX_FUNCTIONS: usize = 64;
/// Maximum number of bindings of each of them.
const MAX_BINDINGS: usize = 64;

/// Problems are reported; a class without a valid lineage is omitted.
pub(super) fn resolve_classes(
    diagnostics: &mut Diagnostics,
    path: &Path,
    scope: &Scope<'_>,
) -> Vec<ResolvedClass> {
    let mut lineages = Lineages::default();
    let mut shared = functions::FunctionCache::new();
    let mut resolved = Vec::new();
    for (at, class) in scope.own.classes.iter().enumerate() {
        let path = path.index(at);
        let origin = Origin { package: scope.own.name.clone(), key: class.key.clone() };
        let lineage = match lineages.of(&origin, scope) {
            Ok(lineage) => lineage,
            Err(message) => {
                diagnostics.add(&path.field("parents"), message);
                continue;
            }
        };
        let ancestors: Vec<(&Origin, &OClass)> =
            lineage.iter().filter_map(|it| Some((it, scope.class(it)?))).collect();
        if let Some((field, count)) = merge::too_many(&ancestors) {
            let max = merge::MAX_MEMBERS;
            let message =
                format!("has {count} entries with inherited ones; at most {max} are allowed");
            diagnostics.add(&path.field(field), message);
            continue;
        }
        let mut problems = ClassProblems::new();
        let found = resolve_class(scope, &mut shared, class, &ancestors, &mut problems);
        for (binding, message) in problems {
            let own =
                binding.and_then(|name| class.functions.iter().position(|it| it.name == name));
            let path = own.map_or_else(|| path.clone(), |at| path.field("functions").index(at));
            diagnostics.add(&path, message);
        }
        for (at, reference) in class.ref_spec.iter().enumerate() {
            if scope.class(&Scope::origin(&scope.own.name, &reference.class)).is_none() {
                let message = format!("the class {} does not exist", quote(&reference.class));
                diagnostics.add(&path.field("refSpec").index(at).field("class"), message);
            }
        }
        resolved.push(found);
    }
    resolved
}

fn resolve_class(
    scope: &Scope<'_>,
    shared: &mut functions::FunctionCache,
    class: &OClass,
    ancestors: &[(&Origin, &OClass)],
    problems: &mut ClassProblems,
) -> ResolvedClass {
    let bindings = merge::bindings(scope, ancestors, problems);
    let state_spec = merge::state(ancestors, problems);
    let references = merge::references(ancestors);
    let functions = functions::collect(scope, shared, &bindings, problems);
    functions::check_macros(&bindings, &functions, state_spec.as_ref(), &references, problems);
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
    // A disabled class is only inherited from, so it may be incomplete.
    if !class.disabled {
        check_deployable(&resolved, problems);
    }
    resolved
}

/// Checks the limits of a deployment unit, and that every setting has an effect.
fn check_deployable(class: &ResolvedClass, problems: &mut ClassProblems) {
    if class.functions.len() > MAX_FUNCTIONS {
        let count = class.functions.len();
        let message = format!("needs {count} functions; at most {MAX_FUNCTIONS} are allowed");
        problems.push((None, message));
    }
    for function in &class.functions {
        let names = class.bindings.iter().filter(|it| it.function == function.key).count();
        if names > MAX_BINDINGS {
            let key = quote(&function.key);
            let message = format!(
                "the function {key} has {names} bindings; at most {MAX_BINDINGS} are allowed"
            );
            problems.push((None, message));
        }
    }
    for binding in &class.bindings {
        let function = class.function(&binding.function);
        if binding.trigger_on_state_change {
            check_trigger(class, binding, function, problems);
        }
        if !class.has_grid() && function.is_some_and(|it| it.function.odgm.is_some()) {
            let message = format!(
                "the function {} has odgm settings, but the class has no state",
                quote(&binding.function)
            );
            problems.push((Some(binding.name.clone()), message));
        }
    }
    if class.state_spec.is_none() && class.state_type != crate::StateType::Normal {
        let message = format!("stateType {} needs a stateSpec", class.state_type);
        problems.push((None, message));
    }
}

fn check_trigger(
    class: &ResolvedClass,
    binding: &ResolvedBinding,
    function: Option<&ResolvedFunction>,
    problems: &mut ClassProblems,
) {
    let mut add = |message: &str| {
        problems.push((Some(binding.name.clone()), format!("{}: {message}", quote(&binding.name))));
    };
    if !class.has_grid() {
        add("triggerOnStateChange has no effect: the class has no state");
    }
    if function.is_some_and(|it| !it.function.runs_in_container()) {
        add(super::TRIGGER_NEEDS_CONTAINER);
    }
}
