//! Deployments against the resolved package that they deploy.

use std::collections::BTreeSet;

use super::{ResolvedClass, ResolvedPackage, TRIGGER_NEEDS_CONTAINER};
use crate::{
    check::{add_disabled_class, add_unknown_class, class_fields},
    diagnostics::{Diagnostics, FieldCursor},
    model::{OClassDeployment, StateType},
    names::{closest_match, quote},
};

/// Checks that the classes of a deployment exist and may be deployed, that the functions it names
/// belong to them, and that its state settings apply to at least one stateful class.
pub fn check_against(
    deployment: &OClassDeployment,
    package: &ResolvedPackage,
) -> Result<(), Diagnostics> {
    Diagnostics::collect(|root| check_against_at(root, deployment, package))
}

/// [`check_against`] for a deployment that its package may contain.
pub(super) fn check_against_at(
    at: &FieldCursor<'_>,
    deployment: &OClassDeployment,
    package: &ResolvedPackage,
) {
    let mut classes: Vec<&ResolvedClass> = Vec::new();
    for (at, key) in class_fields(at, deployment) {
        match package.class(key) {
            None => add_unknown_class(&at, key, package.classes.iter().map(|it| it.key.as_str())),
            Some(class) if class.disabled => add_disabled_class(&at, key),
            Some(class) => classes.push(class),
        }
    }
    if classes.is_empty() {
        return;
    }
    check_functions(at, deployment, &classes);
    if classes.iter().all(|class| !class.has_grid()) {
        check_stateless(at, deployment);
    }
    let singleton = classes.iter().find(|class| class.state_type == StateType::Singleton);
    if let Some(class) = singleton
        && deployment.partition_count.is_some_and(|count| count > 1)
    {
        let class = quote(&class.key);
        let message = format!("must be 1: the class {class} is a SINGLETON and has one object");
        at.field("partitionCount").add(message);
    }
}

/// Checks the functions that members and triggers name.
fn check_functions(
    at: &FieldCursor<'_>,
    deployment: &OClassDeployment,
    classes: &[&ResolvedClass],
) {
    let functions: BTreeSet<&str> =
        classes.iter().flat_map(|it| &it.functions).map(|it| it.key.as_str()).collect();
    let check_known = |at: &FieldCursor<'_>, key: &str| {
        if !functions.contains(key) {
            let message = format!("the deployed classes have no function {}", quote(key));
            at.add_with_suggestion(message, closest_match(key, functions.iter().copied()));
        }
    };
    for (at, member) in at.field("members").items(&deployment.members) {
        for (field, keys) in
            [("disabledFn", &member.disabled_fn), ("standbyFn", &member.standby_fn)]
        {
            for (at, key) in at.field(field).items(keys) {
                check_known(&at, key);
            }
        }
    }
    let events = deployment.odgm.as_ref().and_then(|grid| grid.events.as_ref());
    let triggers = events.map(|events| events.triggers.as_slice()).unwrap_or_default();
    for (at, trigger) in at.field("odgm").field("events").field("triggers").items(triggers) {
        let at = at.field("function");
        check_known(&at, &trigger.function);
        let found: Vec<_> = classes
            .iter()
            .filter_map(|class| Some((class.has_grid(), class.function(&trigger.function)?)))
            .collect();
        if found.iter().any(|(_, it)| !it.function.runs_in_container()) {
            at.add(TRIGGER_NEEDS_CONTAINER);
        } else if !found.is_empty() && found.iter().all(|(stateful, _)| !stateful) {
            at.add("has no effect: no class with state has this function");
        }
    }
}

/// Rejects state settings of a deployment without any stateful class.
fn check_stateless(at: &FieldCursor<'_>, deployment: &OClassDeployment) {
    let own = [
        ("odgm", deployment.odgm.is_some()),
        ("partitionCount", deployment.partition_count.is_some()),
        ("shardType", deployment.shard_type.is_some()),
        ("assignments", !deployment.assignments.is_empty()),
    ];
    reject_without_state(at, &own);
    for (at, member) in at.field("members").items(&deployment.members) {
        let settings = [
            ("maxShards", member.max_shards.is_some()),
            ("allPartitions", member.all_partitions),
            ("gridUrl", member.grid_url.is_some()),
        ];
        reject_without_state(&at, &settings);
    }
}

fn reject_without_state(at: &FieldCursor<'_>, settings: &[(&str, bool)]) {
    for (field, _) in settings.iter().filter(|(_, given)| *given) {
        let message = "has no effect: no class of the deployment has state";
        at.field(field).add_with_hint(message, "remove it, or add a stateSpec to the class");
    }
}
