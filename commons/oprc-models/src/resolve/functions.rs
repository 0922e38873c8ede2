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
        let mut pending = vec![Scope::origin(&scope.own.name, &binding.function)];
        while let Some(origin) = pending.pop() {
            if !seen.insert(origin.clone()) {
                continue;
            }
            let Some(function) = scope.function(&origin) else {
                let message = format!("the function {origin} does not exist");
                problems.push((Some(binding.name.clone()), message));
                continue;
            };
            pending.extend(steps(&origin, function).rev());
            let key = scope.key(&origin);
            let function = cache.entry(origin.clone()).or_insert_with(|| function.clone().into());
            all.push(ResolvedFunction { key, origin, function: function.clone() });
        }
    }
    all
}

fn steps<'a>(
    origin: &'a Origin,
    function: &'a OFunction,
) -> impl DoubleEndedIterator<Item = Origin> + 'a {
    let steps = function.flow.as_ref().map(|flow| flow.steps.as_slice()).unwrap_or_default();
    steps.iter().map(|step| Scope::origin(&origin.package, &step.function))
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
                match reference {
                    None if target => add(format!(
                        "the macro {} calls a function on {text}, but the class has no reference {}",
                        quote(&found.key),
                        quote(key)
                    )),
                    None if !keys.contains(key) => add(format!(
                        "the macro {} uses {text}, but the class has neither a state key nor a \
                         reference {}",
                        quote(&found.key),
                        quote(key)
                    )),
                    Some((of, reference)) if !may_follow(of, reference, binding, found) => {
                        add(format!(
                            "the macro {} may not use the reference {}, which is {} in {of}",
                            quote(&found.key),
                            quote(key),
                            reference.access.unwrap_or_default()
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
