//! The functions of a class, and what its macros need.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{ClassProblems, Origin, ResolvedBinding, ResolvedFunction, Scope};
use crate::{
    check::StepRef,
    model::{Access, OFunction, Reference, StateSpec},
    names::quote,
};

/// Functions shared between classes.
pub(super) type FunctionCache = BTreeMap<Origin, Arc<OFunction>>;

/// The functions of bindings and, recursively, those that their macros call; a macro precedes the
/// functions that it calls.
pub(super) fn collect(
    scope: &Scope<'_>,
    cache: &mut FunctionCache,
    bindings: &[ResolvedBinding],
    problems: &mut ClassProblems,
) -> Vec<ResolvedFunction> {
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for binding in bindings {
        let mut pending = vec![scope.own_origin(&binding.function)];
        while let Some(origin) = pending.pop() {
            if !seen.insert(origin.clone()) {
                continue;
            }
            let Some(function) = scope.function(&origin) else {
                let message = format!("the function {origin} does not exist");
                problems.push((Some(binding.name.clone()), message));
                continue;
            };
            let steps = function.flow.iter().flat_map(|flow| &flow.steps).rev();
            pending.extend(steps.map(|step| Scope::origin(&origin.package, &step.function)));
            let key = scope.key(&origin);
            let function = cache.entry(origin.clone()).or_insert_with(|| function.clone().into());
            all.push(ResolvedFunction { key, origin, function: function.clone() });
        }
    }
    all
}

/// Checks that the state keys and references that macros use exist and are accessible to them.
pub(super) fn check_macros(
    bindings: &[ResolvedBinding],
    functions: &[ResolvedFunction],
    state: Option<&StateSpec>,
    references: &[(Origin, Reference)],
    problems: &mut ClassProblems,
) {
    let keys: BTreeSet<&str> =
        state.iter().flat_map(|it| &it.key_specs).map(|key| key.name.as_str()).collect();
    for binding in bindings {
        let Some(found) = functions.iter().find(|it| it.key == binding.function) else { continue };
        let mut add = |message: String| problems.push((Some(binding.name.clone()), message));
        for step in found.function.flow.iter().flat_map(|flow| &flow.steps) {
            let used = step.arg_refs.values().chain(&step.inputs).map(|it| (it.as_str(), false));
            for (text, target) in used.chain([(step.target(), true)]) {
                let Some(StepRef::Key(key)) = StepRef::parse(text) else { continue };
                let reference = references.iter().find(|(_, it)| it.name == key);
                let is_state_key = keys.contains(key);
                let (name, key) = (quote(&found.key), quote(key));
                match reference {
                    None if target => add(format!(
                        "the macro {name} calls a function on {text}, but the class has no \
                         reference {key}"
                    )),
                    None if !is_state_key => add(format!(
                        "the macro {name} uses {text}, but the class has neither a state key nor a \
                         reference {key}"
                    )),
                    Some((of, reference)) if !may_follow(of, reference, binding, found) => {
                        let access = reference.access.unwrap_or_default();
                        add(format!(
                            "the macro {name} may not use the reference {key}, which is {access} \
                             in {of}"
                        ));
                    }
                    _ => {}
                }
            }
        }
    }
}

fn may_follow(
    of: &Origin,
    reference: &Reference,
    binding: &ResolvedBinding,
    function: &ResolvedFunction,
) -> bool {
    match reference.access.unwrap_or_default() {
        Access::Private => binding.origin == *of,
        Access::Internal => function.origin.package == of.package,
        Access::Public => true,
    }
}
