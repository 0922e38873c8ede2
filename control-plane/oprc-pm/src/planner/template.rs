//! The requested or hinted template of a unit.

use oprc_models::{OClassDeployment, ResolvedClass};
use oprc_rest::Reason;
use oprc_unit::{UnitSpec, admit};

use super::targets::{Place, reason};

/// The field of the deployment that requests the template, and the reason for the plan.
pub(super) fn requested(deployment: &OClassDeployment, place: &Place<'_>) -> (String, String) {
    match place.member.filter(|it| it.force_template.is_some()) {
        Some(member) => {
            let at = deployment.members.iter().position(|it| it.id == member.id);
            let path = format!("members[{}].forceTemplate", at.unwrap_or_default());
            (path, format!("forced by member {}", member.id))
        }
        None => ("template".to_owned(), "set in the deployment".to_owned()),
    }
}

/// Sets the template hint by the provisions of the functions. CRM treats a hint like a request, so it
/// is set only if the unit is admitted with it; otherwise the requirements decide.
pub(super) fn hint(
    spec: &mut UnitSpec,
    class: &ResolvedClass,
    deployment: &OClassDeployment,
    place: &Place<'_>,
) -> Reason {
    if let Some(template) = &spec.selected_template {
        return reason("selected_template", template, requested(deployment, place).1);
    }
    spec.template_hint = None;
    let runs = |key: &str| !spec.disabled_functions.iter().any(|it| it == key);
    let forms: Vec<&str> = class
        .functions
        .iter()
        .filter(|it| it.function.runs_in_container() && runs(&it.key))
        .filter_map(|it| it.function.provision.as_ref()?.forms().next())
        .map(|(form, _)| form)
        .filter(|form| *form != "docker")
        .collect();
    let none = |because: &str| reason("template_hint", "", because);
    let Some(first) = forms.first() else {
        return none("no function is provisioned for a template: the requirements decide");
    };
    if forms.iter().any(|form| form != first) {
        return none("functions are provisioned for different templates: the requirements decide");
    }
    let hint = if *first == "knative" { "knative" } else { "k8s_deployment" };
    spec.template_hint = Some(hint.to_owned());
    match admit(place.identity(spec), spec, &place.facts.platform()) {
        Ok(_) => reason("template_hint", hint, format!("all functions are provisioned as {first}")),
        Err(rejection) => {
            spec.template_hint = None;
            none(&format!("provisioned as {first}, but {}", rejection.message))
        }
    }
}
