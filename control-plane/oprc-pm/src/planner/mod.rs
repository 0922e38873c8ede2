//! Plans which units of a deployment run in which clusters, with the reason for each decision. Pure:
//! the same deployment, package and state of clusters give the same plan.

mod capacity;
mod enforcement;
mod facts;
mod findings;
mod members;
mod membership;
mod replicas;
mod scale;
mod shards;
mod targets;
mod template;
#[cfg(test)]
mod tests;
mod unit;

use std::collections::{BTreeMap, BTreeSet};

use oprc_models::{
    Access, Diagnostics, FunctionType, OClassDeployment, ResolvedClass, ResolvedPackage,
    check_against,
};
use oprc_rest::{Plan, Reason};

use self::{
    capacity::Load,
    enforcement::warn_of_unenforced,
    findings::Findings,
    targets::{Place, places, reason},
    unit::{Draft, draft},
};
use crate::rollout::MAX_UNITS;

pub use self::facts::ClusterFacts;
use oprc_unit::names;
pub use oprc_unit::{UnitId, parse_unit_id, unit_id};

#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub deployment: &'a OClassDeployment,
    /// The selected version of its package.
    pub package: &'a ResolvedPackage,
    /// All configured clusters.
    pub clusters: &'a BTreeMap<String, ClusterFacts>,
    pub defaults: &'a Defaults,
    /// The current plan: units whose cluster the planner selected stay in that cluster.
    pub current: Option<&'a Plan>,
}

/// Defaults of deployments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    /// `None`: no environment.
    pub environment: Option<String>,
}

/// Plans a deployment, or reports everything that prevents it.
pub fn plan(request: &Request<'_>) -> Result<Plan, Diagnostics> {
    let Request { deployment, package, .. } = *request;
    check_against(deployment, package)?;
    let classes: Vec<&ResolvedClass> =
        deployment.classes().filter_map(|key| package.class(key)).collect();
    let mut findings = Findings::default();
    let mut reasons = vec![version(request)];
    let needs_grid = classes.iter().any(|class| class.has_grid());
    let (places, why) = places(request, needs_grid, &mut findings);
    reasons.extend(why);
    let count = places.len().saturating_mul(classes.len());
    if count > MAX_UNITS {
        let message = format!(
            "{} classes in {} places are {count} units, but at most {MAX_UNITS} are allowed",
            classes.len(),
            places.len(),
        );
        findings.reject("classes", message, Some("split the deployment"));
        return Err(findings.diagnostics);
    }
    for Place { cluster, .. } in places.iter().filter(|place| !place.facts.reachable) {
        findings
            .warn(format!("{cluster} is unreachable: its units are deployed when it reconnects"));
    }
    warn_of_unsupported(&classes, &mut findings.warnings);
    warn_of_unenforced(deployment, &classes, &places, &mut findings.warnings);
    let mut drafts = Vec::with_capacity(count);
    for place in places {
        drafts.extend(classes.iter().map(|class| draft(request, class, place, &mut findings)));
    }
    for class in &classes {
        members::assign(request, class, &mut drafts, &mut findings);
    }
    check_case_conflicts(request, &drafts, &mut findings);
    warn_of_lost_triggers(request, &drafts, &mut findings.warnings);
    if !findings.diagnostics.all.is_empty() {
        return Err(findings.diagnostics);
    }
    let admitted: Vec<_> = drafts.iter().map(|it| it.admit(request, &mut findings)).collect();
    let Findings { diagnostics, mut warnings } = findings;
    if !diagnostics.all.is_empty() {
        return Err(diagnostics);
    }
    let mut load = Load::default();
    let namespace = deployment.namespace.as_deref().unwrap_or_default();
    let units = drafts
        .into_iter()
        .zip(admitted)
        .map(|(draft, admitted)| draft.finish(namespace, admitted, &mut load))
        .collect();
    warnings.extend(load.warnings());
    // Environments of a cluster have the same warnings.
    let mut seen = BTreeSet::new();
    warnings.retain(|warning| seen.insert(warning.clone()));
    Ok(Plan {
        deployment: deployment.key.clone(),
        package: package.name.clone(),
        version: package.version.to_string(),
        units,
        reasons,
        warnings,
    })
}

/// Rejects a class that differs only in case from one that the deployment runs: CRM would reject
/// its unit for as long as the other exists, because both have the same object names.
fn check_case_conflicts(request: &Request<'_>, drafts: &[Draft<'_>], findings: &mut Findings) {
    let name = |cluster: &str, id: &str| (cluster.to_owned(), names::class_runtime(id));
    let planned: BTreeMap<_, _> =
        drafts.iter().map(|draft| (name(draft.place.cluster, &draft.id), draft)).collect();
    for unit in request.current.iter().flat_map(|plan| &plan.units) {
        let draft = planned.get(&name(&unit.cluster, &unit.id));
        if let Some(draft) = draft.filter(|draft| draft.id != unit.id) {
            let (new, old) = (&draft.class.key, &unit.class);
            let message = format!("{new:?} differs from the deployed class {old:?} only in case");
            let hint = "rename it, or delete the deployment first";
            findings.reject("classes", message, Some(hint));
        }
    }
}

fn version(request: &Request<'_>) -> Reason {
    let because = match &request.deployment.version {
        Some(range) => format!("latest version that matches {range}"),
        None => "latest version, because none is set".to_owned(),
    };
    reason("version", request.package.version.to_string(), because)
}

/// Warns of settings that have no effect yet.
fn warn_of_unsupported(classes: &[&ResolvedClass], warnings: &mut Vec<String>) {
    for class in classes {
        let ResolvedClass { key, functions, bindings, .. } = class;
        let macros = functions.iter().filter(|it| it.function.kind() == FunctionType::Macro);
        // The data grid executes macros and checks callers of methods.
        for it in macros.filter(|_| !class.has_grid()) {
            warnings.push(format!("{key}/{}: only `oprc invoke` executes macros", it.key));
        }
        for it in bindings.iter().filter(|it| it.access == Some(Access::Private)) {
            let what = if class.has_grid() { "the Service of its function" } else { "it" };
            warnings.push(format!(
                "{key}/{}: PRIVATE access is not enforced; any pod in the cluster can call {what}",
                it.name
            ));
        }
    }
}

/// Warns of triggers of functions that run in no unit.
fn warn_of_lost_triggers(request: &Request<'_>, drafts: &[Draft<'_>], warnings: &mut Vec<String>) {
    let kept: BTreeSet<&str> = drafts
        .iter()
        .filter_map(|draft| draft.spec.odgm_config.as_ref()?.event_processing.as_ref())
        .flat_map(|it| &it.event_triggers)
        .map(|it| it.function_key.as_str())
        .collect();
    let events = request.deployment.odgm.as_ref().and_then(|it| it.events.as_ref());
    let requested = events.into_iter().flat_map(|it| &it.triggers).map(|it| it.function.as_str());
    let off = |key: &str| format!("{key} is disabled, so state changes don't call it");
    let lost = requested.filter(|key| !kept.contains(key));
    warnings.extend(lost.map(|key| format!("odgm.events.triggers: {}", off(key))));
    for Draft { class, .. } in drafts {
        let own = || drafts.iter().filter(|draft| draft.class.key == class.key);
        let runs = |key: &String| own().any(|it| !it.spec.disabled_functions.contains(key));
        let bound = class.bindings.iter().filter(|it| it.trigger_on_state_change);
        let lost = bound.filter(|it| !runs(&it.function));
        warnings.extend(lost.map(|it| format!("{}/{}: {}", class.key, it.name, off(&it.function))));
        let own_triggers = class.functions.iter().filter(|it| {
            let odgm = it.function.odgm.as_ref();
            odgm.is_some_and(|odgm| !odgm.event_triggers.is_empty())
        });
        let lost = own_triggers.filter(|it| !runs(&it.key));
        warnings.extend(lost.map(|it| format!("{}/{}: {}", class.key, it.key, off(&it.key))));
    }
}
