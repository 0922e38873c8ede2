//! Functions.

use std::collections::BTreeMap;

use super::{Declarations, flow, grid, provision, requirements};
use crate::{
    diagnostics::FieldCursor,
    limits,
    model::{FunctionState, FunctionType, OFunction, Provision},
    names::NameKind,
    rules::is_reserved_env,
};

pub(super) fn check(
    at: &FieldCursor<'_>,
    function: &OFunction,
    functions: &BTreeMap<&str, &OFunction>,
    known: &Declarations<'_>,
) {
    at.field("key").name(NameKind::Function, &function.key);
    requirements::check(at, function.requirements.as_ref(), function.constraints.as_ref());
    if let Some(class) = &function.output_cls {
        known.check_class(&at.field("outputCls"), class);
    }
    if let Some(config) = &function.config {
        let at = at.field("config");
        at.field("timeout").range(config.timeout, limits::CALL_MS);
        at.field("retries").range(config.retries, limits::RETRIES);
        let env = at.field("env");
        env.count(config.env.len(), limits::ENV);
        for (name, value) in &config.env {
            provision::check_env_name(&env.key(name), name, is_reserved_env);
            provision::check_env_value(&env.key(name), &value.0);
        }
    }
    if let Some(odgm) = &function.odgm {
        let at = at.field("odgm");
        let triggers = &odgm.event_triggers;
        for (at, trigger) in at.field("eventTriggers").limited(limits::TRIGGERS, triggers) {
            if let Some(method) = &trigger.method {
                at.field("method").length(method, limits::NAME);
            }
            grid::check_filters(&at, &trigger.collections);
        }
        let at = at.field("collections");
        for (at, name) in at.unique(limits::COLLECTIONS, &odgm.collections, "", |it| it) {
            grid::check_collection_name(&at, name);
        }
    }
    let variables = &function.variable_descriptions;
    for (at, it) in at.field("variableDescriptions").unique(256, variables, "name", |it| &it.name) {
        at.field("name").length(&it.name, 253);
    }
    check_implementation(at, function, functions, known);
}

/// Checks that a function has the steps or the container that its type needs, and nothing that has
/// no effect.
fn check_implementation(
    at: &FieldCursor<'_>,
    function: &OFunction,
    functions: &BTreeMap<&str, &OFunction>,
    known: &Declarations<'_>,
) {
    let kind = function.kind();
    let macro_at = at.field("macro");
    match (&function.flow, kind) {
        (Some(flow), FunctionType::Macro) => flow::check(&macro_at, flow, functions, known),
        (None, FunctionType::Macro) => macro_at.add("is required for a function of type MACRO"),
        (Some(_), _) => {
            let message = format!("is not allowed for a function of type {kind}");
            macro_at.add_with_hint(message, "set type: MACRO");
        }
        (None, _) => {}
    }
    let provision = at.field("provision");
    let forms: Vec<_> = function.provision.iter().flat_map(Provision::forms).collect();
    if let [(first, _), (second, _), ..] = forms.as_slice() {
        provision.field(second).add(format!("{first} is already set; use only one of them"));
    }
    for (form, container) in &forms {
        provision::check_container(&provision.field(form), container);
    }
    if kind == FunctionType::Macro {
        return reject_container_settings(at, function, "a MACRO has no container");
    }
    if function.runs_in_container() {
        return;
    }
    let needs_container = matches!(kind, FunctionType::Task | FunctionType::Custom);
    if needs_container && function.state() != FunctionState::Disabled {
        let form = forms.first().map_or("deployment", |(form, _)| form);
        provision.field(form).field("image").add_with_hint(
            format!("is required: a function of type {kind} runs in a container"),
            "for a function without an implementation, set type: LOGICAL",
        );
    } else if !needs_container {
        let reason = "without an image the function has no container";
        reject_container_settings(at, function, reason);
    }
}

fn reject_container_settings(at: &FieldCursor<'_>, function: &OFunction, reason: &str) {
    for (field, given) in [
        ("provision", function.provision.is_some()),
        ("requirements", function.requirements.is_some()),
        ("constraints", function.constraints.is_some()),
        ("config", function.config.is_some()),
        ("odgm", function.odgm.is_some()),
    ] {
        if given {
            at.field(field).add(format!("has no effect: {reason}"));
        }
    }
}
