//! Numbers of instances and copies, and their requests.

use oprc_rest::Plan;
use oprc_unit::{
    Profile,
    spec::{Collection, Provision},
};

use super::{because, cluster, clusters, planned, platform, shop, single, spec};
use crate::planner::ClusterFacts;

const AVAILABLE: &str = "    requirements: {availability: 0.99}";

fn on(profile: &str) -> ClusterFacts {
    ClusterFacts { platform: Profile::parse(profile).map(platform), ..cluster() }
}

fn scaled(form: &str, function: &str, more: &str, profile: &str) -> (Provision, Plan) {
    let (package, deployment) = single(form, function, more);
    let plan = planned(&package, &deployment, &clusters([("a", on(profile))])).unwrap();
    let provision = spec(&plan.units[0]).functions[0].body.provision.clone().unwrap_or_default();
    (provision, plan)
}

#[test]
fn availability_sets_min_scale_under_each_template() {
    for (form, more, profile, least) in [
        ("docker", "", "dev", 2),
        ("docker", "", "full", 3),
        ("docker", ", template: dev", "full", 2),
        ("docker", ", template: full", "dev", 3),
        ("docker", ", template: knative", "full", 2),
        ("knative", "", "full", 2),
        ("docker", ", replicaCount: 5", "full", 5),
    ] {
        let image = format!("{form}: {{image: i}}");
        let (provision, plan) = scaled(&image, AVAILABLE, more, profile);
        assert_eq!(provision.min_scale, Some(least), "{form} {more} {profile}: {plan:?}");
        assert_eq!(provision.max_scale, None, "{form} {more} {profile}");
        because(&plan.units[0], "functions[0].provision.min_scale");
    }
    let (provision, _) = scaled("docker: {image: i}", "", "", "full");
    assert_eq!(provision.min_scale, None);
}

#[test]
fn raises_max_scale_to_min_scale_with_a_warning() {
    let (provision, plan) = scaled("docker: {image: i, maxScale: 1}", AVAILABLE, "", "full");
    assert_eq!((provision.min_scale, provision.max_scale), (Some(2), Some(2)));
    assert!(plan.warnings.iter().any(|it| it.contains("maxScale is raised from 1 to 2")));
    // `max_scale` overrides the default of the profile, as in CRM.
    let (provision, plan) = scaled("docker: {image: i, maxScale: 2}", AVAILABLE, "", "full");
    assert_eq!((provision.min_scale, provision.max_scale), (Some(2), Some(2)));
    assert_eq!(plan.warnings, [""; 0]);
}

#[test]
fn functions_raised_by_availability_scale_by_load() {
    let loaded = "    requirements: {availability: 0.99, throughput: 5000}";
    for (form, more, most) in [
        ("docker: {image: i}", "", Some(10)),
        ("docker: {image: i}", ", template: knative", None),
        ("docker: {image: i, maxScale: 6}", "", Some(6)),
        // `min_scale` without `max_scale` is a fixed number.
        ("docker: {image: i, minScale: 1}", "", None),
        ("docker: {image: i}", ", replicaCount: 20", None),
    ] {
        let (provision, plan) = scaled(form, loaded, more, "dev");
        assert_eq!(provision.max_scale, most, "{form} {more}");
        if most == Some(10) {
            let why = because(&plan.units[0], "functions[0].provision.max_scale");
            assert!(why.starts_with("5000 requests/s"), "{why}");
        }
    }
}

#[test]
fn planned_requests_equal_those_of_crm() {
    for (form, function, profile, asked) in [
        ("docker: {image: i}", "", "dev", "50m CPU, 64Mi memory"),
        ("docker: {image: i}", "", "full", "300m CPU, 768Mi memory"),
        ("docker: {image: i}", "    requirements: {latency: 99}", "dev", "510m CPU, 528Mi memory"),
        ("docker: {image: i}", "    requirements: {latency: 100}", "dev", "210m CPU, 272Mi memory"),
        // With a proxy of 10m and 16Mi. A limit only lowers the default.
        ("docker: {image: i, cpu: '2', memory: 16Mi}", "", "dev", "50m CPU, 16Mi memory"),
        ("docker: {image: i, cpu: '2', requestsCpu: '1'}", "", "dev", "1000m CPU, 64Mi memory"),
        ("knative: {image: i}", "", "full", "0m CPU, 0Mi memory"),
    ] {
        let (_, plan) = scaled(form, function, "", profile);
        let capacity = plan.units[0].reasons.iter().find(|it| it.field == "requests").unwrap();
        assert_eq!(capacity.value, asked, "{form} {function} {profile}");
    }
}

#[test]
fn the_grid_has_a_node_for_each_copy_of_a_collection() {
    let grid = |class: &str, more: &str| {
        let (package, deployment) = shop(&format!("    stateSpec: {{}}{class}"), more);
        let plan = planned(&package, &deployment, &clusters([("a", on("full"))])).unwrap();
        let unit = spec(&plan.units[0]);
        let config = unit.odgm_config.unwrap();
        let own: Vec<_> = config
            .collections
            .iter()
            .map(|it| match it {
                Collection::Name(_) => None,
                Collection::Spec(it) => it.replica_count,
            })
            .collect();
        let factor = unit.resource_allocation.unwrap().replication_factor.unwrap();
        (factor, config.replica_count.unwrap(), own, plan.warnings)
    };
    // One of the functions requires 0.99, which requires two, and three under consensus.
    let more = "    odgm: {collections: [a, {name: b, replicaCount: 4}]}";
    assert_eq!(grid("", more), (5, 5, vec![None, Some(5)], vec![]));
    let more = "    odgm: {collections: [{name: a, replicaCount: 1}, {name: b, replicaCount: 3}]}";
    let (factor, usual, own, warnings) = grid("", more);
    assert_eq!((factor, usual, own), (3, 3, vec![Some(3), Some(3)]));
    assert!(
        warnings[0].contains("replicaCount of collection a is raised from 1 to 2"),
        "{warnings:?}"
    );
    let more = "    replicaCount: 3\n    odgm: {collections: [{name: a, replicaCount: 2}]}";
    assert_eq!(grid("", more), (3, 3, vec![Some(3)], vec![]));
}

#[test]
fn a_collection_with_consensus_needs_a_majority() {
    let copies = |more: &str| {
        let (package, deployment) = shop("    stateSpec: {consistency: EVENTUAL}", more);
        let nodes = ClusterFacts { node_availability: Some(0.99), ..cluster() };
        let plan = planned(&package, &deployment, &clusters([("a", nodes)])).unwrap();
        spec(&plan.units[0]).resource_allocation.unwrap().replication_factor.unwrap()
    };
    assert_eq!(copies(""), 3);
    assert_eq!(copies("    odgm: {collections: [a, {name: b, shardType: RAFT}]}"), 3);
    assert_eq!(copies("    shardType: RAFT\n    odgm: {collections: [a]}"), 3);
}
