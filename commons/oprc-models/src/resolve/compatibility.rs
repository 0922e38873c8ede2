//! Deployments against the resolved package that they deploy.

use std::collections::BTreeSet;

use super::{ResolvedClass, ResolvedPackage, TRIGGER_NEEDS_CONTAINER};
use crate::{
    check::{add_disabled_class, add_unknown_class, class_fields},
    diagnostics::{Diagnostics, Path},
    model::{OClassDeployment, StateType},
    names::{closest_match, quote},
};

/// Checks that the classes of a deployment exist and may be deployed, that the functions it names
/// belong to them, and that its state settings apply to at least one stateful class.
pub fn check_against(
    deployment: &OClassDeployment,
    package: &ResolvedPackage,
) -> Result<(), Diagnostics> {
    let mut diagnostics = Diagnostics::default();
    check_against_at(&mut diagnostics, &Path::default(), deployment, package);
    diagnostics.or(())
}

/// [`check_against`] for a deployment at a path within its package.
pub(super) fn check_against_at(
    diagnostics: &mut Diagnostics,
    path: &Path,
    deployment: &OClassDeployment,
    package: &ResolvedPackage,
) {
    let mut classes: Vec<&ResolvedClass> = Vec::new();
    for (path, key) in class_fields(path, deployment) {
        match package.class(key) {
            None => {
                let known = package.classes.iter().map(|it| it.key.as_str());
                add_unknown_class(diagnostics, &path, key, known);
            }
            Some(class) if class.disabled => add_disabled_class(diagnostics, &path, key),
            Some(class) => classes.push(class),
        }
    }
    if classes.is_empty() {
        return;
    }
    check_functions(diagnostics, path, deployment, &classes);
    if classes.iter().all(|class| !class.has_grid()) {
        check_stateless(diagnostics, path, deployment);
    }
    let singleton = classes.iter().find(|class| class.state_type == StateType::Singleton);
    if let Some(class) = singleton
        && deployment.partition_count.is_some_and(|count| count > 1)
    {
        let class = quote(&class.key);
        let message = format!("must be 1: the class {class} is a SINGLETON and has one object");
        diagnostics.add(&path.field("partitionCount"), message);
    }
}

/// Checks the functions that members and triggers name.
fn check_functions(
    diagnostics: &mut Diagnostics,
    path: &Path,
    deployment: &OClassDeployment,
    classes: &[&ResolvedClass],
) {
    let functions: BTreeSet<&str> =
        classes.iter().flat_map(|it| &it.functions).map(|it| it.key.as_str()).collect();
    let check_known = |diagnostics: &mut Diagnostics, path: &Path, key: &str| {
        if !functions.contains(key) {
            let message = format!("the deployed classes have no function {}", quote(key));
            let suggestion = closest_match(key, functions.iter().copied());
            diagnostics.add_with_suggestion(path, message, suggestion);
        }
    };
    for (index, member) in deployment.members.iter().enumerate() {
        let path = path.field("members").index(index);
        for (field, keys) in
            [("disabledFn", &member.disabled_fn), ("standbyFn", &member.standby_fn)]
        {
            for (index, key) in keys.iter().enumerate() {
                check_known(diagnostics, &path.field(field).index(index), key);
            }
        }
    }
    let events = deployment.odgm.as_ref().and_then(|grid| grid.events.as_ref());
    let triggers = path.field("odgm").field("events").field("triggers");
    for (index, trigger) in events.iter().flat_map(|events| &events.triggers).enumerate() {
        let path = triggers.index(index).field("function");
        check_known(diagnostics, &path, &trigger.function);
        let found: Vec<_> = classes
            .iter()
            .filter_map(|class| Some((class.has_grid(), class.function(&trigger.function)?)))
            .collect();
        if found.iter().any(|(_, it)| !it.function.runs_in_container()) {
            diagnostics.add(&path, TRIGGER_NEEDS_CONTAINER);
        } else if !found.is_empty() && found.iter().all(|(stateful, _)| !stateful) {
            diagnostics.add(&path, "has no effect: no class with state has this function");
        }
    }
}

/// Rejects state settings of a deployment without any stateful class.
fn check_stateless(diagnostics: &mut Diagnostics, path: &Path, deployment: &OClassDeployment) {
    let own = [
        ("odgm", deployment.odgm.is_some()),
        ("partitionCount", deployment.partition_count.is_some()),
        ("shardType", deployment.shard_type.is_some()),
        ("assignments", !deployment.assignments.is_empty()),
    ];
    let own = own.into_iter().map(|(field, given)| (path.field(field), given));
    let members = deployment.members.iter().enumerate().flat_map(|(index, member)| {
        let path = path.field("members").index(index);
        [
            (path.field("maxShards"), member.max_shards.is_some()),
            (path.field("allPartitions"), member.all_partitions),
        ]
    });
    for (path, _) in own.chain(members).filter(|(_, given)| *given) {
        let message = "has no effect: no class of the deployment has state";
        diagnostics.add_with_hint(&path, message, "remove it, or add a stateSpec to the class");
    }
}
