//! Diagnostics and warnings of settings that have no effect.

use oprc_unit::Profile;

use super::{ClusterFacts, cluster, clusters, planned, platform, read, shop, single};

const GRID: &str = "    stateSpec: {}";

fn diagnostics(more: &str) -> Vec<(String, String)> {
    let (package, deployment) = shop(GRID, more);
    let all = clusters([("a", cluster()), ("b", cluster())]);
    let diagnostics = planned(&package, &deployment, &all).unwrap_err();
    diagnostics.all.into_iter().map(|it| (it.path, it.message)).collect()
}

#[test]
fn rejects_assignments_of_partitions_that_do_not_exist() {
    let member = "    members: [{id: 1, cluster: a}]";
    let found = diagnostics(&format!(
        "{member}\n    assignments: [{{owners: [1], shardIds: [0, 1, 2, 3, 4]}}]"
    ));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "assignments[0].shardIds[4]");
    assert!(found[0].1.starts_with("4 isn't between 0 and 3: Cart"), "{found:?}");
    let collection =
        "{name: c, partitionCount: 2}, {name: d, assignments: [{owners: [1], shardIds: [4]}]}";
    let found = diagnostics(&format!("{member}\n    odgm: {{collections: [{collection}]}}"));
    assert_eq!(found[0].0, "odgm.collections[1].assignments[0].shardIds[0]", "{found:?}");
}

#[test]
fn a_single_member_is_limited_by_max_shards() {
    let found = diagnostics("    members: [{id: 1, cluster: a, maxShards: 3}]");
    assert_eq!(found[0].0, "members");
    assert!(found[0].1.contains("too low for partition 3 of 4"), "{found:?}");
    let (package, deployment) = shop(GRID, "    members: [{id: 1, cluster: a, maxShards: 4}]");
    let plan = planned(&package, &deployment, &clusters([("a", cluster())])).unwrap();
    assert_eq!(plan.units[0].spec.odgm_config.clone().unwrap().shard_assignments, []);
}

#[test]
fn warns_of_triggers_of_disabled_functions() {
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
    let found = warnings(&more(", disabledFn: [buy]"));
    assert!(found[0].contains("buy is disabled"), "{found:?}");
}

#[test]
fn a_macro_that_no_class_offers_gives_no_warning() {
    let (package, deployment) = single(
        "docker: {image: i}",
        "  - {key: m, type: MACRO, macro: {steps: [{function: f}]}}",
        "",
    );
    let found = planned(&package, &deployment, &clusters([("a", cluster())])).unwrap().warnings;
    assert_eq!(found, [""; 0], "no class offers it");
}

#[test]
fn warns_only_of_requirements_that_are_not_enforced() {
    let warnings = |class: &str, more: &str, facts: ClusterFacts| {
        let (package, deployment) = shop(class, more);
        planned(&package, &deployment, &clusters([("a", facts)])).unwrap().warnings
    };
    let fast = "    requirements: {latency: 500}";
    let enforce = "    enforcement: {mode: ENFORCE}";
    let off = || ClusterFacts { enforces_requirements: Some(false), ..cluster() };
    // A function requires an availability.
    let availability =
        "Cart: availability is not enforced at run time; it sets the planned number of replicas";
    for mode in ["", "    enforcement: {mode: OBSERVE}", "    enforcement: {mode: OFF}"] {
        assert_eq!(warnings(fast, mode, off()), [""; 0], "{mode}");
    }
    assert_eq!(warnings(fast, enforce, cluster()), [availability]);
    let older =
        ClusterFacts { measures_requirements: None, enforces_requirements: None, ..cluster() };
    assert_eq!(warnings(fast, enforce, older), [availability]);
    let found = warnings(fast, enforce, off());
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("a: requirements are only reported"), "{found:?}");
    let blind = ClusterFacts { measures_requirements: Some(false), ..cluster() };
    let found = warnings(fast, enforce, blind);
    assert!(found[0].contains("its CRM reads no Prometheus"), "{found:?}");
    let memory = "    enforcement: {mode: ENFORCE, dimensions: [MEMORY]}";
    let found = warnings(fast, memory, cluster());
    assert!(found[1].contains("enforcement.dimensions lacks REPLICAS"), "{found:?}");
    assert_eq!(warnings("", memory, cluster()), [availability], "no latency is required");
}

#[test]
fn warns_of_own_triggers_and_bindings_of_disabled_functions() {
    let warnings = |members: &str| {
        let text = format!(
            "name: s\nversion: 1.0.0\nfunctions:\n  - key: f\n    provision: {{docker: {{image: i}}}}\n    \
             odgm: {{eventTriggers: [{{type: CREATE}}]}}\n\
             classes:\n  - key: C\n    stateSpec: {{}}\n    functions:\n      \
             - {{name: onChange, function: f, triggerOnStateChange: true, access: PRIVATE}}\n\
             deployments:\n  - key: d\n    class: C\n    members: [{members}]\n"
        );
        let (package, deployments) = read(&text);
        let all = clusters([("a", cluster()), ("b", cluster())]);
        planned(&package, &deployments[0], &all).unwrap().warnings
    };
    let found = warnings("{id: 1, cluster: a, disabledFn: [f]}, {id: 2, cluster: b}");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("C/onChange: PRIVATE"), "{found:?}");
    let found = warnings("{id: 1, cluster: a, disabledFn: [f]}");
    for of in ["C/onChange: f is disabled", "C/f: f is disabled"] {
        assert!(found.iter().any(|it| it.starts_with(of)), "{of}: {found:?}");
    }
}

#[test]
fn warns_of_max_scale_without_autoscaling() {
    let (package, deployment) = shop("", "");
    let warnings = |hpa: bool| {
        let mut platform = platform(Profile::Dev);
        platform.knative = false;
        platform.features.hpa = hpa;
        let all = clusters([("a", ClusterFacts { platform: Some(platform), ..cluster() })]);
        planned(&package, &deployment, &all).unwrap().warnings
    };
    assert_eq!(warnings(true), [""; 0]);
    let found = warnings(false);
    assert!(found.iter().any(|it| it.contains("capability hpa")), "{found:?}");
}
