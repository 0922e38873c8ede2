//! Functions.

use std::collections::BTreeMap;

use super::{
    DAY_MS, check_count, check_length, check_name, check_range, check_unique,
    declarations::Declarations, flow, grid, provision, requirements,
};
use crate::{
    diagnostics::{Diagnostics, Path},
    model::{FunctionState, FunctionType, OFunction, Provision},
    names::NameKind,
};

pub(super) fn check(
    diagnostics: &mut Diagnostics,
    path: &Path,
    function: &OFunction,
    functions: &BTreeMap<&str, &OFunction>,
    known: &Declarations<'_>,
) {
    check_name(diagnostics, &path.field("key"), NameKind::Function, &function.key);
    let (required, constraints) = (function.requirements.as_ref(), function.constraints.as_ref());
    requirements::check(diagnostics, path, required, constraints);
    if let Some(class) = &function.output_cls {
        known.check_class(diagnostics, &path.field("outputCls"), class);
    }
    if let Some(config) = &function.config {
        let path = path.field("config");
        check_range(diagnostics, &path.field("timeout"), config.timeout, 1, DAY_MS);
        let env = path.field("env");
        provision::check_env_names(diagnostics, &env, config.env.keys());
        for (name, value) in &config.env {
            provision::check_env_value(diagnostics, &env.key(name), &value.0);
        }
    }
    if let Some(odgm) = &function.odgm {
        let path = path.field("odgm").field("collections");
        check_count(diagnostics, &path, odgm.collections.len(), 64);
        check_unique(diagnostics, &path, "", odgm.collections.iter().map(String::as_str));
        for (index, collection) in odgm.collections.iter().enumerate() {
            grid::check_collection_name(diagnostics, &path.index(index), collection);
        }
    }
    let variables = path.field("variableDescriptions");
    check_count(diagnostics, &variables, function.variable_descriptions.len(), 256);
    let names = || function.variable_descriptions.iter().map(|it| it.name.as_str());
    check_unique(diagnostics, &variables, "name", names());
    for (index, variable) in names().enumerate() {
        check_length(diagnostics, &variables.index(index).field("name"), variable, 253);
    }
    check_implementation(diagnostics, path, function, functions, known);
}

/// Checks that a function has the steps or the container that its type needs, and nothing that has
/// no effect.
fn check_implementation(
    diagnostics: &mut Diagnostics,
    path: &Path,
    function: &OFunction,
    functions: &BTreeMap<&str, &OFunction>,
    known: &Declarations<'_>,
) {
    let kind = function.kind();
    let macro_path = path.field("macro");
    match (&function.flow, kind) {
        (Some(flow), FunctionType::Macro) => {
            flow::check(diagnostics, &macro_path, flow, functions, known);
        }
        (None, FunctionType::Macro) => {
            diagnostics.add(&macro_path, "is required for a function of type MACRO");
        }
        (Some(_), _) => {
            let message = format!("is not allowed for a function of type {kind}");
            diagnostics.add_with_hint(&macro_path, message, "set type: MACRO");
        }
        (None, _) => {}
    }
    let provision = path.field("provision");
    let forms: Vec<_> = function.provision.iter().flat_map(Provision::forms).collect();
    if let [(first, _), (second, _), ..] = forms.as_slice() {
        let message = format!("{first} is already set; use only one of them");
        diagnostics.add(&provision.field(second), message);
    }
    for (form, container) in &forms {
        provision::check_container(diagnostics, &provision.field(form), container);
    }
    if kind == FunctionType::Macro {
        return reject_container_settings(diagnostics, path, function, "a MACRO has no container");
    }
    if function.runs_in_container() {
        return;
    }
    let needs_container = matches!(kind, FunctionType::Task | FunctionType::Custom);
    if needs_container && function.state() != FunctionState::Disabled {
        let form = forms.first().map_or("deployment", |(form, _)| form);
        diagnostics.add_with_hint(
            &provision.field(form).field("image"),
            format!("is required: a function of type {kind} runs in a container"),
            "for a function without an implementation, set type: LOGICAL",
        );
    } else if !needs_container {
        let reason = "without an image the function has no container";
        reject_container_settings(diagnostics, path, function, reason);
    }
}

fn reject_container_settings(
    diagnostics: &mut Diagnostics,
    path: &Path,
    function: &OFunction,
    reason: &str,
) {
    for (field, given) in [
        ("provision", function.provision.is_some()),
        ("requirements", function.requirements.is_some()),
        ("constraints", function.constraints.is_some()),
        ("config", function.config.is_some()),
        ("odgm", function.odgm.is_some()),
    ] {
        if given {
            diagnostics.add(&path.field(field), format!("has no effect: {reason}"));
        }
    }
}
