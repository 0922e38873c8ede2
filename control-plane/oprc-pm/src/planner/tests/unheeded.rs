//! What is said takes effect, or is told.

use oprc_unit::Profile;

use super::{ClusterFacts, cluster, clusters, planned, platform, read, shop, single};

const GRID: &str = "    stateSpec: {}";

fn faults(more: &str) -> Vec<(String, String)> {
    let (package, deployment) = shop(GRID, more);
    let all = clusters([("a", cluster()), ("b", cluster())]);
    let faults = planned(&package, &deployment, &all).unwrap_err();
    faults.all.into_iter().map(|it| (it.path, it.message)).collect()
}

#[test]
fn nobody_is_assigned_parts_that_there_are_not() {
    let member = "    members: [{id: 1, cluster: a}]";
    let told =
        faults(&format!("{member}\n    assignments: [{{owners: [1], shardIds: [0, 1, 2, 3, 4]}}]"));
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].0, "assignments[0].shardIds[4]");
    assert!(told[0].1.starts_with("4 isn't between 0 and 3: Cart"), "{told:?}");
    let collection =
        "{name: c, partitionCount: 2}, {name: d, assignments: [{owners: [1], shardIds: [4]}]}";
    let told = faults(&format!("{member}\n    odgm: {{collections: [{collection}]}}"));
    assert_eq!(told[0].0, "odgm.collections[1].assignments[0].shardIds[0]", "{told:?}");
}

#[test]
fn one_member_takes_no_more_than_it_takes() {
    let told = faults("    members: [{id: 1, cluster: a, maxShards: 3}]");
    assert_eq!(told[0].0, "members");
    assert!(told[0].1.contains("no room for part 3 of 4"), "{told:?}");
    let (package, deployment) = shop(GRID, "    members: [{id: 1, cluster: a, maxShards: 4}]");
    let plan = planned(&package, &deployment, &clusters([("a", cluster())])).unwrap();
    assert_eq!(plan.units[0].spec.odgm_config.clone().unwrap().shard_assignments, []);
}

#[test]
fn a_trigger_of_what_is_switched_off_is_told() {
    let more = |disabled: &str| {
        format!(
            "    odgm: {{events: {{triggers: [{{function: buy}}]}}}}\n    members: \
             [{{id: 1, cluster: a, disabledFn: [buy]}}, {{id: 2, cluster: b{disabled}}}]"
        )
    };
    let warnings = |more: &str| {
        let (package, deployment) = shop(GRID, more);
        let all = clusters([("a", cluster()), ("b", cluster())]);
        planned(&package, &deployment, &all).unwrap().warnings
    };
    assert_eq!(warnings(&more("")), [""; 0]);
    let told = warnings(&more(", disabledFn: [buy]"));
    assert!(told[0].contains("buy is switched off"), "{told:?}");
}

#[test]
fn what_nothing_sees_to_is_told() {
    let warnings = |class: &str, more: &str| {
        let (package, deployment) = shop(class, more);
        planned(&package, &deployment, &clusters([("a", cluster())])).unwrap().warnings
    };
    assert_eq!(warnings("", "    enforcement: {mode: OBSERVE}"), [""; 0]);
    let told = warnings("", "    enforcement: {mode: ENFORCE}");
    assert!(told[0].contains("nothing enforces"), "{told:?}");
    let (package, deployment) = single(
        "docker: {image: i}",
        "  - {key: m, type: MACRO, macro: {steps: [{function: f}]}}",
        "",
    );
    let told = planned(&package, &deployment, &clusters([("a", cluster())])).unwrap().warnings;
    assert_eq!(told, [""; 0], "no class offers it");
}

#[test]
fn a_binding_whose_function_is_switched_off_is_told() {
    let warnings = |members: &str| {
        let text = format!(
            "name: s\nversion: 1.0.0\nfunctions:\n  - {{key: f, provision: {{docker: {{image: i}}}}}}\n\
             classes:\n  - key: C\n    stateSpec: {{}}\n    functions:\n      \
             - {{name: onChange, function: f, triggerOnStateChange: true, access: PRIVATE}}\n\
             deployments:\n  - key: d\n    class: C\n    members: [{members}]\n"
        );
        let (package, deployments) = read(&text);
        let all = clusters([("a", cluster()), ("b", cluster())]);
        planned(&package, &deployments[0], &all).unwrap().warnings
    };
    let told = warnings("{id: 1, cluster: a, disabledFn: [f]}, {id: 2, cluster: b}");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("onChange is PRIVATE"), "{told:?}");
    let told = warnings("{id: 1, cluster: a, disabledFn: [f]}");
    assert!(told.iter().any(|it| it.contains("f is switched off")), "{told:?}");
}

#[test]
fn bounds_that_nothing_scales_within_are_told() {
    let (package, deployment) = shop("", "");
    let warnings = |hpa: bool| {
        let mut platform = platform(Profile::Dev);
        platform.knative = false;
        platform.features.hpa = hpa;
        let all = clusters([("a", ClusterFacts { platform: Some(platform), ..cluster() })]);
        planned(&package, &deployment, &all).unwrap().warnings
    };
    assert_eq!(warnings(true), [""; 0]);
    let told = warnings(false);
    assert!(told.iter().any(|it| it.contains("capability hpa")), "{told:?}");
}
