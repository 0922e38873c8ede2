//! The functions that a class needs, and what macros among them need of the class.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Origin, ResolvedBinding, ResolvedFunction, Scope};
use crate::{
    check::Ref,
    model::{Access, OFunction, Reference, StateSpec},
    names::shown,
};

/// Functions that classes share.
pub(super) type Shared = BTreeMap<Origin, Arc<OFunction>>;

/// The functions of bindings, and those that steps of macros among them call, in the order in which
/// they are met. What isn't there is noted.
pub(super) fn needed(
    scope: &Scope<'_>,
    shared: &mut Shared,
    bindings: &[ResolvedBinding],
    faults: &mut Vec<(Option<String>, String)>,
) -> Vec<ResolvedFunction> {
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for binding in bindings {
        let mut ahead = vec![Scope::origin(&scope.own.name, &binding.function)];
        while let Some(origin) = ahead.pop() {
            if !seen.insert(origin.clone()) {
                continue;
            }
            let Some(function) = scope.function(&origin) else {
                let message = format!("there is no function {origin}");
                faults.push((Some(binding.name.clone()), message));
                continue;
            };
            ahead.extend(steps(&origin, function).rev());
            let key = scope.key(&origin);
            let function = shared.entry(origin.clone()).or_insert_with(|| function.clone().into());
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

/// What macros that a class offers use of its objects must be there, and be theirs to use.
pub(super) fn macros(
    bindings: &[ResolvedBinding],
    functions: &[ResolvedFunction],
    state: Option<&StateSpec>,
    references: &[(Origin, Reference)],
    faults: &mut Vec<(Option<String>, String)>,
) {
    let keys: BTreeSet<&str> =
        state.iter().flat_map(|it| &it.key_specs).map(|key| key.name.as_str()).collect();
    for binding in bindings {
        let Some(found) = functions.iter().find(|it| it.key == binding.function) else { continue };
        let mut note = |message: String| faults.push((Some(binding.name.clone()), message));
        for step in found.function.flow.iter().flat_map(|flow| &flow.steps) {
            let used = step.arg_refs.values().chain(&step.inputs).map(|it| (it.as_str(), false));
            for (text, target) in used.chain([(step.target(), true)]) {
                let Some(Ref::Key(key)) = Ref::parse(text) else { continue };
                let reference = references.iter().find(|(_, it)| it.name == key);
                match reference {
                    None if target => note(format!(
                        "the macro {} is to call a function on {text}, and the class has no \
                         reference {}",
                        shown(&found.key),
                        shown(key)
                    )),
                    None if !keys.contains(key) => note(format!(
                        "the macro {} uses {text}, and the class has neither a key nor a \
                         reference {}",
                        shown(&found.key),
                        shown(key)
                    )),
                    Some((of, reference)) if !may_follow(of, reference, binding, found) => {
                        note(format!(
                            "the macro {} may not use the reference {}, which is {} in {of}",
                            shown(&found.key),
                            shown(key),
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
