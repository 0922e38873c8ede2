//! Decisions of the planner.

use super::{because, cluster, clusters, planned, read, shop, single, spec};
use oprc_unit::{Capacity, Profile};

use super::platform;
use crate::planner::{ClusterFacts, Defaults, Request, plan};

const GRID: &str = "    stateSpec: {}";

#[test]
fn availability_is_that_of_the_most_demanding_function() {
    let (package, deployment) = shop(GRID, "");
    let plan = planned(&package, &deployment, &clusters([("a", cluster())])).unwrap();
    let unit = spec(&plan.units[0]);
    // The requirement stays where it is written, for CRM to enforce it there.
    let required = |key: &str| {
        let function = unit.functions.iter().find(|it| it.key == key).unwrap();
        function.body.requirements.as_ref().and_then(|it| it.availability)
    };
    assert_eq!((required("buy"), required("sell")), (None, Some(0.99)));
    assert_eq!(unit.nfr_requirements, None);
    // Two copies, and three because they agree by consensus.
    assert_eq!(unit.resource_allocation.unwrap().replication_factor, Some(3));
    assert_eq!(unit.odgm_config.unwrap().replica_count, Some(3));
    let why = because(&plan.units[0], "resource_allocation.replication_factor");
    assert!(
        why.starts_with("sell requires availability 0.99") && why.contains("raised to 3"),
        "{why}"
    );
}

#[test]
fn number_of_clusters_does_not_change_bounds_of_functions() {
    let (package, deployment) = shop("", "    targetClusters: [a, b, c]");
    let all = clusters([("a", cluster()), ("b", cluster()), ("c", cluster())]);
    let plan = planned(&package, &deployment, &all).unwrap();
    assert_eq!(plan.units.len(), 3);
    for unit in &plan.units {
        let scales: Vec<_> = spec(unit)
            .functions
            .iter()
            .map(|it| it.body.provision.clone().unwrap().min_scale)
            .collect();
        // One sets 1 and requires nothing, the other requires 0.99.
        assert_eq!(scales, [Some(1), Some(2)]);
    }
}

#[test]
fn raises_replica_count_to_the_minimum_with_a_warning() {
    let requirements = "    stateSpec: {}\n    requirements: {availability: 0.999}";
    let (package, deployment) = shop(requirements, "    replicaCount: 1");
    let plan = planned(&package, &deployment, &clusters([("a", cluster())])).unwrap();
    let unit = spec(&plan.units[0]);
    assert_eq!(unit.resource_allocation.unwrap().replication_factor, Some(3));
    let expected = "replicaCount of the deployment is raised from 1 to 3";
    assert!(plan.warnings.iter().any(|it| it.contains(expected)), "{:?}", plan.warnings);
}

#[test]
fn rejects_an_availability_that_nodes_never_reach() {
    let requirements =
        "    stateSpec: {consistency: STRONG}\n    requirements: {availability: 0.9}";
    let (package, deployment) = shop(requirements, "");
    let poor = ClusterFacts { node_availability: Some(0.4), ..cluster() };
    let diagnostics = planned(&package, &deployment, &clusters([("a", poor)])).unwrap_err();
    assert_eq!(diagnostics.all[0].path, "replicaCount");
    assert!(diagnostics.all[0].message.contains("on the nodes of a at 0.4"), "{diagnostics}");
    // An explicit number is planned, with a warning.
    for class in ["", GRID] {
        let class = format!("{class}\n    requirements: {{availability: 1}}");
        let (package, deployment) = shop(&class, "    replicaCount: 4");
        let nodes = ClusterFacts { node_availability: Some(0.99), ..cluster() };
        let plan = planned(&package, &deployment, &clusters([("a", nodes)])).unwrap();
        let expected = "Cart/buy requires availability 1, which up to 99 instances";
        assert!(plan.warnings.iter().any(|it| it.starts_with(expected)), "{:?}", plan.warnings);
        assert_eq!(
            spec(&plan.units[0]).functions[0].body.provision.clone().unwrap().min_scale,
            Some(4)
        );
    }
}

#[test]
fn rejects_a_cluster_without_the_data_grid() {
    let (package, deployment) = shop(GRID, "    targetClusters: [a, b]");
    let without =
        ClusterFacts { platform: Some(oprc_unit::Platform::of(Profile::Dev)), ..cluster() };
    let all = clusters([("a", cluster()), ("b", without)]);
    let diagnostics = planned(&package, &deployment, &all).unwrap_err();
    assert_eq!(diagnostics.all.len(), 1);
    let text = diagnostics.to_string();
    assert!(text.contains("class Cart") && text.contains("cluster b"), "{text}");
}

#[test]
fn plans_for_a_cluster_that_never_connected_with_a_warning() {
    let (package, deployment) = shop(GRID, "");
    let unknown = ClusterFacts { default: true, ..ClusterFacts::default() };
    let plan = planned(&package, &deployment, &clusters([("a", unknown)])).unwrap();
    assert!(plan.warnings.iter().any(|it| it.contains("never connected")), "{:?}", plan.warnings);
    assert!(plan.warnings.iter().any(|it| it.contains("a is unreachable")));
}

#[test]
fn selects_the_best_cluster_and_keeps_it() {
    let (package, deployment) = shop(GRID, "");
    let away = ClusterFacts { reachable: false, ..cluster() };
    let small =
        ClusterFacts { capacity: Some(Capacity { cpu_millis: 1, memory_bytes: 1 }), ..cluster() };
    let other = ClusterFacts { default: false, ..cluster() };
    let full = ClusterFacts { requested: cluster().capacity.unwrap(), ..cluster() };
    let all = clusters([("a", away), ("b", small), ("b2", full), ("c", cluster()), ("d", other)]);
    let first = planned(&package, &deployment, &all).unwrap();
    assert_eq!(first.units[0].cluster, "c");
    let gone = ClusterFacts { reachable: false, ..cluster() };
    let all = clusters([("a", cluster()), ("c", gone)]);
    let request = Request {
        deployment: &deployment,
        package: &package,
        clusters: &all,
        defaults: &Defaults { environment: None },
        current: Some(&first),
    };
    assert_eq!(plan(&request).unwrap().units[0].cluster, "c");
    let moved = plan(&Request { current: None, ..request }).unwrap();
    assert_eq!(moved.units[0].cluster, "a");
}

#[test]
fn rejects_a_class_that_differs_from_a_deployed_one_only_in_case() {
    let (package, deployment) = shop("", "");
    let all = clusters([("a", cluster())]);
    let mut current = planned(&package, &deployment, &all).unwrap();
    let request = Request {
        deployment: &deployment,
        package: &package,
        clusters: &all,
        defaults: &Defaults { environment: None },
        current: Some(&current.clone()),
    };
    plan(&request).unwrap();
    current.units[0].id = "shop.cart..a".to_owned();
    current.units[0].class = "cart".to_owned();
    let diagnostics = plan(&Request { current: Some(&current), ..request }).unwrap_err();
    let message = "\"Cart\" differs from the deployed class \"cart\" only in case";
    assert_eq!(diagnostics.all[0].message, message);
    current.units[0].cluster = "b".to_owned();
    plan(&Request { current: Some(&current), ..request }).unwrap();
}

#[test]
fn unknown_clusters_are_reported_with_the_configured_ones() {
    let (package, mut deployment) = shop("", "    targetClusters: [x]");
    let all = clusters([("a", cluster())]);
    let diagnostics = planned(&package, &deployment, &all).unwrap_err();
    assert_eq!(diagnostics.all[0].path, "targetClusters[0]");
    assert_eq!(diagnostics.all[0].hint.as_deref(), Some("configured: a"));
    deployment.target_clusters.clear();
    let diagnostics = planned(&package, &deployment, &clusters([])).unwrap_err();
    assert!(diagnostics.to_string().contains("no cluster is configured"), "{diagnostics}");
    let none = ClusterFacts { default: false, ..cluster() };
    let diagnostics = planned(&package, &deployment, &clusters([("a", none.clone()), ("b", none)]));
    assert!(diagnostics.unwrap_err().to_string().contains("no cluster is a default"));
}

#[test]
fn environments_default_to_the_configured_one() {
    let (package, deployment) = shop("", "");
    let all = clusters([("a", ClusterFacts { environments: vec!["dev".into()], ..cluster() })]);
    let defaults = Defaults { environment: Some("dev".into()) };
    let request = Request {
        deployment: &deployment,
        package: &package,
        clusters: &all,
        defaults: &defaults,
        current: None,
    };
    let plan = plan(&request).unwrap();
    assert_eq!(plan.units[0].id, "shop.Cart.dev..a");
    assert_eq!(spec(&plan.units[0]).target_environment.as_deref(), Some("dev"));
    let (package, deployment) = shop("", "    targetEnvs: [prod]\n    targetClusters: [a]");
    let diagnostics = planned(&package, &deployment, &all).unwrap_err();
    assert!(diagnostics.to_string().contains("has no environment \"prod\""), "{diagnostics}");
}

#[test]
fn template_is_requested_or_hinted_by_provision() {
    let file = |form: &str, more: &str, function: &str| {
        single(&format!("{form}: {{image: i}}"), function, more)
    };
    let hint = |form: &str, facts: ClusterFacts, constraints: &str| {
        let (package, deployment) = file(form, "", constraints);
        let plan = planned(&package, &deployment, &clusters([("a", facts)])).unwrap();
        spec(&plan.units[0]).template_hint
    };
    assert_eq!(hint("knative", cluster(), "").as_deref(), Some("knative"));
    assert_eq!(hint("deployment", cluster(), "").as_deref(), Some("k8s_deployment"));
    assert_eq!(hint("docker", cluster(), ""), None);
    let mut no_knative = platform(Profile::Dev);
    no_knative.knative = false;
    let without = ClusterFacts { platform: Some(no_knative), ..cluster() };
    assert_eq!(hint("knative", without, ""), None);
    // A hint that a hard constraint rules out would cause the unit to be rejected.
    assert_eq!(hint("knative", cluster(), "    constraints: {hardLatency: 100}"), None);
    assert_eq!(hint("knative", cluster(), "    config: {timeout: 600001}"), None);
    let (package, deployment) =
        file("knative", ", template: unified, members: [{id: 1, forceTemplate: job}]", "");
    let plan = planned(&package, &deployment, &clusters([("a", cluster())])).unwrap();
    let unit = spec(&plan.units[0]);
    assert_eq!((unit.selected_template.as_deref(), unit.template_hint), (Some("job"), None));
    let (package, deployment) = file("knative", ", template: mine", "");
    let diagnostics = planned(&package, &deployment, &clusters([("a", cluster())])).unwrap_err();
    assert_eq!(diagnostics.all[0].path, "template");
}

#[test]
fn does_not_hint_knative_for_incompatible_functions() {
    let hint = |form: &str, function: &str, more: &str| {
        let (package, deployment) = single(form, function, more);
        let plan = planned(&package, &deployment, &clusters([("a", cluster())])).unwrap();
        spec(&plan.units[0]).template_hint
    };
    let claim = "knative: {image: i, volumes: [{mountPath: /a, claim: c}]}";
    assert_eq!(hint(claim, "", ""), None);
    // Warm, unless it is on standby.
    let warm = "knative: {image: i, minScale: 1}";
    let quick = "    constraints: {hardLatency: 100}";
    assert_eq!(hint(warm, quick, "").as_deref(), Some("knative"));
    assert_eq!(hint(warm, quick, ", members: [{id: 1, standbyFn: [f]}]"), None);
    // Disabled functions rule nothing out.
    let (package, mut deployments) = read(&format!(
        "name: s\nversion: 1.0.0\nfunctions:\n  - {{key: f, provision: {{{warm}}}}}\n\
         \x20 - {{key: g, state: DISABLED, provision: {{{claim}}}, constraints: {{hardLatency: 1}}}}\n\
         classes:\n  - key: C\n    functions: [{{name: f, function: f}}, {{name: g, function: g}}]\n\
         deployments:\n  - {{key: d, class: C}}\n"
    ));
    let deployment = deployments.remove(0);
    let plan = planned(&package, &deployment, &clusters([("a", cluster())])).unwrap();
    assert_eq!(spec(&plan.units[0]).template_hint.as_deref(), Some("knative"));
}

#[test]
fn rejects_too_many_units() {
    let names: Vec<String> = (0..81).map(|at| format!("e{at}")).collect();
    let (package, deployment) = shop("", &format!("    targetEnvs: [{}]", names.join(", ")));
    let diagnostics = planned(&package, &deployment, &clusters([("a", cluster())])).unwrap_err();
    assert!(
        diagnostics.to_string().contains("81 units, but at most 80 are allowed"),
        "{diagnostics}"
    );
}

#[test]
fn warns_of_requests_above_the_capacity() {
    let (package, deployment) = shop("", "");
    let small = ClusterFacts {
        capacity: Some(Capacity { cpu_millis: 150, memory_bytes: 1 << 30 }),
        ..cluster()
    };
    let plan = planned(&package, &deployment, &clusters([("a", small)])).unwrap();
    // One instance at 100m, two at 50m, with the profile's 64Mi each. Those with a requirement have
    // a proxy with 10m and 16Mi.
    let capacity = plan.units[0].reasons.iter().find(|it| it.field == "requests").unwrap();
    assert_eq!(capacity.value, "220m CPU, 224Mi memory");
    assert_eq!(plan.warnings.len(), 1, "{:?}", plan.warnings);
    assert!(plan.warnings[0].contains("220m CPU"), "{:?}", plan.warnings);

    // Requests of other deployments count.
    let half = Capacity { cpu_millis: 150, memory_bytes: 0 };
    let shared = ClusterFacts {
        capacity: Some(Capacity { cpu_millis: 300, memory_bytes: 1 << 30 }),
        requested: half,
        ..cluster()
    };
    let plan = planned(&package, &deployment, &clusters([("a", shared)])).unwrap();
    assert!(plan.warnings[0].contains("other deployments 150m"), "{:?}", plan.warnings);
}
