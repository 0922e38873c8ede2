//! What is to run where, and why: a function of the deployment, its package and what is known of
//! clusters, with no IO and no clock, so that the same question has the same answer.

mod capacity;
mod facts;
mod faults;
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
    Access, Collection, Diagnostics, EnforcementMode, FunctionType, OClassDeployment,
    ResolvedClass, ResolvedPackage, check_against,
};
use oprc_rest::{Plan, Reason};

use self::{
    capacity::Load,
    targets::{places, reason},
    unit::{Draft, draft},
};
use crate::rollout::MAX_UNITS;

pub use self::facts::ClusterFacts;
use oprc_unit::names;
pub use oprc_unit::{UnitId, parse_unit_id, unit_id};

/// What is to be planned.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The deployment.
    pub deployment: &'a OClassDeployment,
    /// The version of its package that was chosen.
    pub package: &'a ResolvedPackage,
    /// The clusters that are configured.
    pub clusters: &'a BTreeMap<String, ClusterFacts>,
    /// What holds for deployments that don't say.
    pub defaults: &'a Defaults,
    /// The plan that is driven now, where there is one: what was put somewhere because nobody said
    /// where, stays there.
    pub former: Option<&'a Plan>,
}

/// What holds for deployments that don't say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    /// The environment; none for each cluster's own default.
    pub environment: Option<String>,
}

/// Plans a deployment, or tells everything that stands against it.
pub fn plan(request: &Request<'_>) -> Result<Plan, Diagnostics> {
    let Request { deployment, package, .. } = *request;
    check_against(deployment, package)?;
    let classes: Vec<&ResolvedClass> =
        deployment.classes().filter_map(|key| package.class(key)).collect();
    let mut faults = Diagnostics::default();
    let mut warnings = Vec::new();
    let mut reasons = vec![version(request)];
    let wants_grid = classes.iter().any(|class| class.has_grid());
    let (places, why) = places(request, wants_grid, &mut faults);
    reasons.extend(why);
    let count = places.len().saturating_mul(classes.len());
    if count > MAX_UNITS {
        let message = format!(
            "{} classes in {} places are {count} units, and {} are allowed",
            classes.len(),
            places.len(),
            MAX_UNITS
        );
        faults::hint(&mut faults, "classes", message, "split the deployment");
        return Err(faults);
    }
    for place in places.iter().filter(|place| !place.facts.reachable) {
        warnings.push(format!("{} doesn't answer: it catches up when it returns", place.cluster));
    }
    unheeded(deployment, &classes, &mut warnings);
    let mut drafts = Vec::with_capacity(count);
    for place in places {
        for class in &classes {
            drafts.push(draft(request, class, place, &mut faults, &mut warnings));
        }
    }
    for class in &classes {
        assign(request, class, &mut drafts, &mut faults, &mut warnings);
    }
    names_taken(request, &drafts, &mut faults);
    triggers(request, &drafts, &mut warnings);
    if !faults.all.is_empty() {
        return Err(faults);
    }
    let admitted: Vec<_> =
        drafts.iter().map(|it| it.admit(request, &mut faults, &mut warnings)).collect();
    if !faults.all.is_empty() {
        return Err(faults);
    }
    let mut load = Load::default();
    let namespace = deployment.namespace.as_deref().unwrap_or_default();
    let units = drafts
        .into_iter()
        .zip(admitted)
        .map(|(draft, admitted)| draft.finish(namespace, admitted, &mut load))
        .collect();
    warnings.extend(load.warnings());
    // Environments of a cluster have the same said of them.
    let mut told = BTreeSet::new();
    warnings.retain(|warning| told.insert(warning.clone()));
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
fn names_taken(request: &Request<'_>, drafts: &[Draft<'_>], faults: &mut Diagnostics) {
    let name = |cluster: &str, id: &str| (cluster.to_owned(), names::class_runtime(id));
    let planned: BTreeMap<_, _> =
        drafts.iter().map(|draft| (name(draft.place.cluster, &draft.id), draft)).collect();
    for unit in request.former.iter().flat_map(|plan| &plan.units) {
        let draft = planned.get(&name(&unit.cluster, &unit.id));
        if let Some(draft) = draft.filter(|draft| draft.id != unit.id) {
            let (new, old) = (&draft.class.key, &unit.class);
            let message = format!("{new:?} differs from the deployed class {old:?} only in case");
            faults::hint(faults, "classes", message, "rename it, or delete the deployment first");
        }
    }
}

fn version(request: &Request<'_>) -> Reason {
    let because = match &request.deployment.version {
        Some(range) => format!("the newest that {range} allows"),
        None => "the newest, as none is said".to_owned(),
    };
    reason("version", request.package.version.to_string(), because)
}

/// Tells of what nothing in a cluster sees to.
fn unheeded(deployment: &OClassDeployment, classes: &[&ResolvedClass], warnings: &mut Vec<String>) {
    let mode = deployment.enforcement.as_ref().and_then(|it| it.mode);
    if mode == Some(EnforcementMode::Enforce) {
        warnings.push("enforcement.mode: nothing enforces requirements yet".to_owned());
    }
    for class in classes {
        let key = &class.key;
        let macros = class.functions.iter().filter(|it| it.function.kind() == FunctionType::Macro);
        warnings.extend(macros.map(|it| {
            format!("{key}: {} is a macro: its steps are taken by `oprc invoke`", it.key)
        }));
        let private = class.bindings.iter().filter(|it| it.access == Some(Access::Private));
        warnings.extend(private.map(|it| {
            format!(
                "{key}: {} is PRIVATE, and pods of its cluster can call it all the same",
                it.name
            )
        }));
    }
}

/// Tells of triggers that no unit has, as what they call runs in none.
fn triggers(request: &Request<'_>, drafts: &[Draft<'_>], warnings: &mut Vec<String>) {
    let kept: BTreeSet<&str> = drafts
        .iter()
        .filter_map(|draft| draft.spec.odgm_config.as_ref()?.event_processing.as_ref())
        .flat_map(|it| &it.event_triggers)
        .map(|it| it.function_key.as_str())
        .collect();
    let events = request.deployment.odgm.as_ref().and_then(|it| it.events.as_ref());
    let said = events.into_iter().flat_map(|it| &it.triggers).map(|it| it.function.as_str());
    let off = |key: &str| format!("{key} is switched off, so changes of state don't call it");
    let lost = said.filter(|key| !kept.contains(key));
    warnings.extend(lost.map(|key| format!("odgm.events.triggers: {}", off(key))));
    for Draft { class, .. } in drafts {
        let own = || drafts.iter().filter(|draft| draft.class.key == class.key);
        let runs = |key: &String| own().any(|it| !it.spec.disabled_functions.contains(key));
        let bound = class.bindings.iter().filter(|it| it.trigger_on_state_change);
        let lost = bound.filter(|it| !runs(&it.function));
        warnings.extend(lost.map(|it| format!("{}.{}: {}", class.key, it.name, off(&it.function))));
    }
}

/// Settles which members have which shards of a class.
fn assign(
    request: &Request<'_>,
    class: &ResolvedClass,
    drafts: &mut [Draft<'_>],
    faults: &mut Diagnostics,
    warnings: &mut Vec<String>,
) {
    let deployment = request.deployment;
    if !class.has_grid() || deployment.members.is_empty() {
        return;
    }
    let own = || drafts.iter().filter(|draft| draft.class.key == class.key);
    let partitions = own().map(|draft| draft.partitions).max().unwrap_or(1);
    let copies = own().map(|draft| draft.replicas).max().unwrap_or(1);
    let key = &class.key;
    let collections = || deployment.odgm.iter().flat_map(|grid| &grid.collections);
    for (at, Collection(it)) in collections().enumerate() {
        let path = format!("odgm.collections[{at}].assignments");
        let parts = it.partition_count.unwrap_or(partitions);
        shards::check(key, &path, &it.assignments, parts, faults);
    }
    shards::check(key, "assignments", &deployment.assignments, partitions, faults);
    if !deployment.assignments.is_empty() {
        let assigned: BTreeSet<i32> =
            deployment.assignments.iter().flat_map(|it| it.shard_ids.iter().copied()).collect();
        let missing = (0..partitions).filter(|shard| !assigned.contains(shard)).count();
        if missing > 0 {
            warnings.push(format!("{key}: {missing} of {partitions} parts are assigned to nobody"));
        }
        return;
    }
    let members: Vec<_> = deployment.members.iter().enumerate().collect();
    let all = shards::assign(key, &members, partitions, copies, faults, warnings);
    // One member has everything, if it takes as much.
    if members.len() < 2 {
        return;
    }
    // What is assigned below is by the parts of the class.
    for Collection(it) in collections().filter(|Collection(it)| it.assignments.is_empty()) {
        if let Some(parts) = it.partition_count.filter(|parts| *parts > partitions) {
            let name = &it.name;
            warnings.push(format!(
                "{key}: {} of {parts} parts of {name} are assigned to nobody: give it assignments",
                parts - partitions
            ));
        }
    }
    for draft in drafts.iter_mut().filter(|draft| draft.class.key == class.key) {
        draft.assign(&all);
    }
}
