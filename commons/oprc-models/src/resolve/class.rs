//! Resolves the classes of a package.

use super::{
    ClassProblems, Origin, ResolvedBinding, ResolvedClass, Scope, functions, lineage::Lineages,
    merge,
};
use crate::{diagnostics::FieldCursor, limits, model::OClass, names::quote};

/// Problems are reported; a class without a valid lineage is omitted.
pub(super) fn resolve_classes(at: &FieldCursor<'_>, scope: &Scope<'_>) -> Vec<ResolvedClass> {
    let mut lineages = Lineages::default();
    let mut shared = functions::FunctionCache::new();
    let mut resolved = Vec::new();
    for (at, class) in at.items(&scope.own.classes) {
        let origin = Origin { package: scope.own.name.clone(), key: class.key.clone() };
        let lineage = match lineages.of(&origin, scope) {
            Ok(lineage) => lineage,
            Err(message) => {
                at.field("parents").add(message);
                continue;
            }
        };
        let ancestors: Vec<(&Origin, &OClass)> =
            lineage.iter().filter_map(|it| Some((it, scope.class(it)?))).collect();
        if let Some((field, count)) = merge::too_many(&ancestors) {
            let max = limits::MEMBERS;
            at.field(field)
                .add(format!("has {count} entries with inherited ones; at most {max} are allowed"));
            continue;
        }
        let mut problems = ClassProblems::new();
        resolved.push(resolve_class(scope, &mut shared, class, &ancestors, &mut problems));
        for (binding, message) in problems {
            let own =
                binding.and_then(|name| class.functions.iter().position(|it| it.name == name));
            match own {
                Some(index) => at.field("functions").index(index).add(message),
                None => at.add(message),
            }
        }
        for (at, reference) in at.field("refSpec").items(&class.ref_spec) {
            scope.check_class(&at.field("class"), &reference.class);
        }
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
        proxy: ancestors.iter().find_map(|(_, class)| class.proxy),
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
    let (count, max) = (class.functions.len(), limits::FUNCTIONS);
    if count > max {
        problems.push((None, format!("needs {count} functions; at most {max} are allowed")));
    }
    for function in &class.functions {
        let count = class.bindings.iter().filter(|it| it.function == function.key).count();
        if count > limits::BINDINGS {
            let (key, max) = (quote(&function.key), limits::BINDINGS);
            let message =
                format!("the function {key} has {count} bindings; at most {max} are allowed");
            problems.push((None, message));
        }
        let triggers = function.function.odgm.iter().flat_map(|it| &it.event_triggers);
        for method in triggers.filter_map(|it| it.method.as_ref()) {
            let is_own = |it: &ResolvedBinding| it.function == function.key && it.name == *method;
            if !class.bindings.iter().any(is_own) {
                let (key, method) = (quote(&function.key), quote(method));
                let message = format!(
                    "the function {key} has a trigger of {method}, which isn't its binding"
                );
                problems.push((None, message));
            }
        }
    }
    for binding in &class.bindings {
        let mut add = |message| problems.push((Some(binding.name.clone()), message));
        let function = class.function(&binding.function).map(|it| &it.function);
        let name = quote(&binding.name);
        if binding.trigger_on_state_change && !class.has_grid() {
            add(format!("{name}: triggerOnStateChange has no effect: the class has no state"));
        }
        if binding.condition.is_some() && !class.has_grid() {
            add(format!(
                "{name}: condition has no effect: the class has no state, so calls don't go \
                 through a data grid"
            ));
        }
        if binding.trigger_on_state_change && function.is_some_and(|it| !it.runs_in_container()) {
            add(format!("{name}: {}", super::TRIGGER_NEEDS_CONTAINER));
        }
        if !class.has_grid() && function.is_some_and(|it| it.odgm.is_some()) {
            let key = quote(&binding.function);
            add(format!("the function {key} has odgm settings, but the class has no state"));
        }
    }
    if class.state_spec.is_none() && class.state_type != crate::StateType::Normal {
        problems.push((None, format!("stateType {} needs a stateSpec", class.state_type)));
    }
}
