//! Which template a unit asks for.

use oprc_grpc::deployment::unit::ClassSpec;
use oprc_models::{Diagnostics, OClassDeployment, ResolvedClass, ResolvedFunction};
use oprc_rest::Reason;

use super::{
    faults,
    targets::{Place, reason},
};

/// The longest call that Knative takes, unless it is configured otherwise.
const LONGEST_MS: i32 = 600_000;

/// What CRM calls by other names.
fn canonical(name: &str) -> &str {
    match name {
        "deployment" | "k8s-deployment" | "dev" | "edge" | "full" | "prod" | "cloud" => {
            "k8s_deployment"
        }
        name => name,
    }
}

/// Settles the template: what a member forces, then what the deployment says, then what the forms
/// of the functions hint at.
pub(super) fn template(
    spec: &mut ClassSpec,
    class: &ResolvedClass,
    deployment: &OClassDeployment,
    place: &Place<'_>,
    faults: &mut Diagnostics,
) -> Reason {
    let templates = &place.facts.templates;
    let has = |name: &str| templates.is_empty() || templates.iter().any(|it| it == canonical(name));
    if let Some(asked) = spec.selected_template.clone() {
        let member = place.member.filter(|it| it.force_template.is_some());
        let (path, because) = match member {
            Some(member) => {
                let at = deployment.members.iter().position(|it| it.id == member.id);
                let path = format!("members[{}].forceTemplate", at.unwrap_or_default());
                (path, format!("forced by member {}", member.id))
            }
            None => ("template".to_owned(), "the deployment says so".to_owned()),
        };
        if !has(&asked) {
            let message = format!("the cluster {} has no template {asked:?}", place.cluster);
            faults::hint(faults, path, message, format!("it has: {}", templates.join(", ")));
        }
        return reason("selected_template", asked, because);
    }
    let field = "template_hint";
    let runs = |key: &str| !spec.disabled_functions.iter().any(|it| it == key);
    let forms: Vec<&str> = class
        .functions
        .iter()
        .filter(|it| it.function.runs_in_container() && runs(&it.key))
        .filter_map(|it| it.function.provision.as_ref()?.forms().next())
        .map(|(form, _)| form)
        .filter(|form| *form != "docker")
        .collect();
    let open = |because: &str| reason(field, "", because);
    let Some(first) = forms.first() else {
        return open("no function is made for one: requirements decide");
    };
    if forms.iter().any(|form| form != first) {
        return open("functions are made for different ones: requirements decide");
    }
    let hint = if *first == "knative" { "knative" } else { "k8s_deployment" };
    if hint == "knative" {
        if !place.facts.capabilities.is_some_and(|it| it.knative) || !has(hint) {
            return open("functions are made for knative, which the cluster isn't known to have");
        }
        if let Some(why) = ruled_out(spec) {
            return open(&format!("functions are made for knative, {why}"));
        }
    } else if !has(hint) {
        return open("functions are made for k8s_deployment, which the cluster doesn't have");
    }
    spec.template_hint = Some(hint.to_owned());
    reason(field, hint, format!("its functions are provisioned as {first}"))
}

/// Whether a function that says no other number of instances has those of Knative, as far as that
/// is known before the hint is.
pub(super) fn is_knative(
    asked: Option<&str>,
    function: &ResolvedFunction,
    place: &Place<'_>,
) -> bool {
    let form = || function.function.provision.as_ref()?.forms().next().map(|(form, _)| form);
    let there = place.facts.capabilities.is_some_and(|it| it.knative);
    asked.map_or_else(|| there && form() == Some("knative"), |asked| asked == "knative")
}

/// A hint binds as much as an order: one that CRM can't follow would have the unit refused, where
/// another template will do.
fn ruled_out(spec: &ClassSpec) -> Option<String> {
    let class = spec.constraints.as_ref().and_then(|it| it.hard_latency_ms);
    // Macros and what is switched off don't run, and so constrain nothing.
    let mut running = spec
        .functions
        .iter()
        .filter(|it| it.image.is_some() && !spec.disabled_functions.contains(&it.key));
    running.find_map(|function| {
        let key = &function.key;
        let provision = function.provision.as_ref();
        if provision.is_some_and(|it| it.volume_mounts.iter().any(|it| it.claim.is_some())) {
            return Some(format!("which mounts no volume claims, and {key} has one"));
        }
        let timeout = function.config.as_ref().and_then(|it| it.timeout_ms);
        if timeout.is_some_and(|timeout| timeout > LONGEST_MS) {
            return Some(format!(
                "which ends calls after {LONGEST_MS} ms, and {key} may take longer"
            ));
        }
        let own = function.constraints.as_ref().and_then(|it| it.hard_latency_ms);
        let hard = [own, class].into_iter().flatten().min()?;
        let least = provision.and_then(|it| it.min_scale).unwrap_or_default();
        // What is on standby goes down to nothing, whatever its least number is.
        let warm = least >= 1 && !spec.standby_functions.contains(key);
        let floor = if warm { 10 } else { 3000 };
        (hard < floor)
            .then(|| format!("which may take {floor} ms, and {key} must answer within {hard} ms"))
    })
}
