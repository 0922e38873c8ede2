//! The methods of a class with a data grid: bindings of functions, macros, and triggers.

use std::collections::{BTreeMap, BTreeSet};

use oprc_models::{StepRef, limits};

use super::{Identity, ValidFunction, violations::Violations};
use crate::spec::{
    Access, Binding, EventTrigger, FunctionTrigger, FunctionType, MacroSpec, SingleFunction,
    TriggerType, UnitSpec,
};

/// A method whose function runs in this unit.
#[derive(Clone, Debug, PartialEq)]
pub struct MethodPlan {
    pub name: String,
    /// Key of its function.
    pub function: String,
    pub access: Access,
    /// CEL expression that must hold for a call.
    pub condition: Option<String>,
}

/// A method that the data grid executes step by step.
#[derive(Clone, Debug, PartialEq)]
pub struct MacroPlan {
    pub name: String,
    pub access: Access,
    pub condition: Option<String>,
    pub flow: MacroSpec,
}

/// A method that is called when an object changes.
#[derive(Clone, Debug, PartialEq)]
pub struct TriggerPlan {
    pub method: String,
    pub trigger_type: TriggerType,
    /// Names of collections, or patterns.
    pub collections: Vec<String>,
    pub async_execution: bool,
    /// CEL expression that must hold for the changed object.
    pub condition: Option<String>,
}

#[derive(Default)]
pub(super) struct Resolved {
    pub(super) methods: Vec<MethodPlan>,
    pub(super) macros: Vec<MacroPlan>,
    pub(super) triggers: Vec<TriggerPlan>,
}

/// A function with the bindings that it has, or else the one that follows from its key.
struct Bound<'a> {
    field: String,
    key: &'a str,
    body: &'a SingleFunction,
    bindings: Vec<Binding>,
}

/// Resolves the methods of a class. `filters` are the collections that triggers of bindings follow.
pub(super) fn resolve(
    violations: &mut Violations,
    identity: &Identity,
    spec: &UnitSpec,
    functions: &[ValidFunction],
    filters: &[String],
) -> Resolved {
    let keys = spec.function.iter().map(|_| identity.name.as_str());
    let keys = keys.chain(spec.functions.iter().map(|it| it.key.as_str()));
    let bound: Vec<_> =
        spec.bodies().zip(keys).map(|((field, body), key)| bound(field, key, body)).collect();
    let names = check_names(violations, &bound);
    let mut all = Resolved::default();
    for Bound { field, key, body, bindings } in &bound {
        if body.flow.is_some() && body.kind != Some(FunctionType::Macro) {
            violations.add(format!("{field}.macro"), "is only allowed for the type MACRO");
        }
        if spec.disabled_functions.iter().any(|it| it == key) {
            continue;
        }
        if let Some(flow) = &body.flow {
            check_steps(violations, field, flow, &names);
        }
        let runs = functions.iter().any(|it| it.key == *key);
        for Binding { name, access, condition, trigger_on_state_change, async_execution, .. } in
            bindings
        {
            let access = access.or(body.access).unwrap_or_default();
            let (name, condition) = (name.clone(), condition.clone());
            if let Some(flow) = &body.flow {
                all.macros.push(MacroPlan { name, access, condition, flow: flow.clone() });
            } else if runs {
                let function = (*key).to_owned();
                all.triggers.extend(trigger_on_state_change.then(|| TriggerPlan {
                    method: name.clone(),
                    trigger_type: TriggerType::StateChange,
                    collections: filters.to_vec(),
                    async_execution: *async_execution,
                    condition: condition.clone(),
                }));
                all.methods.push(MethodPlan { name, function, access, condition });
            }
        }
        let own: Vec<_> = all.methods.iter().filter(|it| it.function == *key).collect();
        let odgm = body.odgm.iter();
        for (at, it) in odgm.flat_map(|odgm| odgm.event_triggers.iter().enumerate()) {
            // What doesn't run isn't called.
            if runs {
                let field = format!("{field}.odgm.event_triggers[{at}]");
                all.triggers.extend(own_trigger(violations, &field, it, body, &own));
            }
        }
    }
    let events = spec.odgm_config.iter().filter_map(|it| it.event_processing.as_ref());
    let more: Vec<_> = events.flat_map(|it| &it.event_triggers).collect();
    let requested = more.into_iter().enumerate();
    all.triggers.extend(requested.filter_map(|(at, it)| trigger(violations, at, it, &all.methods)));
    all
}

fn bound<'a>(field: String, key: &'a str, body: &'a SingleFunction) -> Bound<'a> {
    let mut bindings = body.bindings.clone();
    if bindings.is_empty() {
        bindings.push(Binding { name: key.to_owned(), ..Binding::default() });
    }
    Bound { field, key, body, bindings }
}

/// Names of all methods, including those of functions that don't run here.
fn check_names<'a>(violations: &mut Violations, bound: &'a [Bound<'_>]) -> BTreeSet<&'a str> {
    let mut names = BTreeMap::new();
    for Bound { field, key, body, bindings } in bound {
        for (at, Binding { name, .. }) in bindings.iter().enumerate() {
            let Some(other) = names.insert(name.as_str(), *key) else { continue };
            let path = if body.bindings.is_empty() {
                format!("{field}.key")
            } else {
                format!("{field}.bindings[{at}].name")
            };
            violations.add(path, format!("{name:?} is already a method of the function {other:?}"));
        }
    }
    if names.len() > limits::MEMBERS {
        let (count, max) = (names.len(), limits::MEMBERS);
        let message = format!("the class has {count} methods; at most {max} are allowed");
        violations.add("functions", message);
    }
    names.into_keys().collect()
}

fn check_steps(
    violations: &mut Violations,
    field: &str,
    flow: &MacroSpec,
    methods: &BTreeSet<&str>,
) {
    if flow.steps.is_empty() {
        violations.add(format!("{field}.macro.steps"), "a macro needs at least one step");
    }
    let mut names = BTreeSet::new();
    for (at, step) in flow.steps.iter().enumerate() {
        let field = format!("{field}.macro.steps[{at}]");
        let references = step.arg_refs.values().chain(&step.inputs).map(String::as_str);
        for text in references.chain([step.target()]) {
            match StepRef::parse(text) {
                Some(StepRef::Step(name, _)) if !names.contains(name) => {
                    violations.add(&*field, format!("{text:?} refers to no earlier step"));
                }
                Some(_) => {}
                None => violations.add(
                    &*field,
                    format!(
                        "{text:?} is not a reference: use $, $.key, $args.name, step or step.key"
                    ),
                ),
            }
        }
        if step.target() == "$" && !methods.contains(step.method.as_str()) {
            let message = format!("the class has no method {:?}", step.method);
            violations.add(format!("{field}.method"), message);
        }
        if let Some(name) = &step.name
            && !names.insert(name.as_str())
        {
            violations.add(format!("{field}.as"), format!("{name:?} is given twice"));
        }
    }
    if let Some(output) = flow.output.as_deref().filter(|it| !names.contains(it)) {
        let message = format!("no step has the name {output:?}");
        violations.add(format!("{field}.macro.output"), message);
    }
}

/// A trigger of a function itself.
fn own_trigger(
    violations: &mut Violations,
    field: &str,
    trigger: &FunctionTrigger,
    body: &SingleFunction,
    methods: &[&MethodPlan],
) -> Option<TriggerPlan> {
    let named = |it: &&&MethodPlan| trigger.method.as_ref().is_none_or(|name| it.name == *name);
    let Some(method) = methods.iter().find(named) else {
        let names: Vec<_> = methods.iter().map(|it| it.name.as_str()).collect();
        let message = format!(
            "{:?} isn't a binding of the function; it has: {}",
            trigger.method.as_deref().unwrap_or_default(),
            names.join(", ")
        );
        violations.add(format!("{field}.method"), message);
        return None;
    };
    let collections = if trigger.collection_filters.is_empty() {
        body.odgm.as_ref().map(|it| it.collections.clone()).unwrap_or_default()
    } else {
        trigger.collection_filters.clone()
    };
    Some(TriggerPlan {
        method: method.name.clone(),
        trigger_type: trigger.trigger_type.unwrap_or_default(),
        collections,
        async_execution: trigger.async_execution,
        condition: method.condition.clone(),
    })
}

/// A trigger that names a function calls the first of its methods.
fn trigger(
    violations: &mut Violations,
    at: usize,
    trigger: &EventTrigger,
    methods: &[MethodPlan],
) -> Option<TriggerPlan> {
    let key = &trigger.function_key;
    let Some(method) = methods.iter().find(|it| it.function == *key) else {
        violations.add(
            format!("odgm_config.event_processing.event_triggers[{at}].function_key"),
            format!("{key:?} isn't a function that runs in this unit"),
        );
        return None;
    };
    Some(TriggerPlan {
        method: method.name.clone(),
        trigger_type: trigger.trigger_type.unwrap_or_default(),
        collections: trigger.collection_filters.clone(),
        async_execution: trigger.async_execution,
        condition: method.condition.clone(),
    })
}
