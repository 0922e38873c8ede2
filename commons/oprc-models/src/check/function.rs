//! Functions.

use std::collections::BTreeMap;

use super::{
    DAY_MS, flow, length, many, name, package::Known, provision, reference, requirements, unique,
};
use crate::{
    fault::{Faults, Path},
    model::{FunctionState, FunctionType, OFunction, Provision},
    names::Name,
};

pub(super) fn check(
    faults: &mut Faults,
    path: &Path,
    function: &OFunction,
    functions: &BTreeMap<&str, &OFunction>,
    known: &Known<'_>,
) {
    name(faults, &path.field("key"), Name::Function, &function.key);
    requirements::requirements(faults, &path.field("requirements"), function.requirements.as_ref());
    requirements::constraints(faults, &path.field("constraints"), function.constraints.as_ref());
    if let Some(class) = &function.output_cls {
        let (own, others) = (&known.classes, &known.dependencies);
        reference(faults, &path.field("outputCls"), "class", Name::Word, class, own, others);
    }
    if let Some(config) = &function.config {
        let path = path.field("config");
        super::range(faults, &path.field("timeout"), config.timeout, 1, DAY_MS);
        provision::variables(faults, &path.field("env"), config.env.keys());
        for (key, value) in &config.env {
            provision::value(faults, &path.field("env").key(key), &value.0);
        }
    }
    if let Some(odgm) = &function.odgm {
        let path = path.field("odgm").field("collections");
        many(faults, &path, &odgm.collections, 64);
        unique(faults, &path, "", odgm.collections.iter().map(String::as_str));
        for (at, collection) in odgm.collections.iter().enumerate() {
            super::deployment::collection_name(faults, &path.index(at), collection);
        }
    }
    let variables = path.field("variableDescriptions");
    many(faults, &variables, &function.variable_descriptions, 256);
    let names = || function.variable_descriptions.iter().map(|it| it.name.as_str());
    unique(faults, &variables, "name", names());
    for (at, variable) in names().enumerate() {
        length(faults, &variables.index(at).field("name"), variable, 253);
    }
    body(faults, path, function, functions, known);
}

/// What a function of its kind must have, and what nothing would heed.
fn body(
    faults: &mut Faults,
    path: &Path,
    function: &OFunction,
    functions: &BTreeMap<&str, &OFunction>,
    known: &Known<'_>,
) {
    let kind = function.kind();
    let place = path.field("macro");
    match (&function.flow, kind) {
        (Some(flow), FunctionType::Macro) => flow::check(faults, &place, flow, functions, known),
        (None, FunctionType::Macro) => faults.add(&place, "is missing: a MACRO needs steps"),
        (Some(_), _) => {
            faults.hint(&place, format!("a {kind} has no steps"), "say type: MACRO");
        }
        (None, _) => {}
    }
    let place = path.field("provision");
    let forms: Vec<_> = function.provision.iter().flat_map(Provision::forms).collect();
    if let [_, (second, _), ..] = forms.as_slice() {
        faults.add(&place.field(second), "another form is given already: one is enough");
    }
    for (form, container) in &forms {
        provision::container(faults, &place.field(form), container);
    }
    if kind == FunctionType::Macro {
        return without_container(faults, path, function, "a MACRO runs in no container");
    }
    if function.runs() {
        return;
    }
    let needed = matches!(kind, FunctionType::Task | FunctionType::Custom);
    if needed && function.state() != FunctionState::Disabled {
        let form = forms.first().map_or("deployment", |(form, _)| form);
        let message = format!("is missing: a {kind} runs in a container");
        faults.hint(
            &place.field(form).field("image"),
            message,
            "a function that nothing runs for is of type LOGICAL",
        );
    } else if !needed {
        without_container(faults, path, function, "without an image it runs in no container");
    }
}

fn without_container(faults: &mut Faults, path: &Path, function: &OFunction, why: &str) {
    for (field, given) in [
        ("provision", function.provision.is_some()),
        ("requirements", function.requirements.is_some()),
        ("constraints", function.constraints.is_some()),
        ("config", function.config.is_some()),
        ("odgm", function.odgm.is_some()),
    ] {
        if given {
            faults.add(&path.field(field), format!("nothing would heed it: {why}"));
        }
    }
}
