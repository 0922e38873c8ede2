//! CRM admits every plan and selects the planned template, for random packages, deployments and
//! configurations of CRM.

use oprc_grpc::unit::{from_wire, to_wire};
use oprc_models::{Body, OClassDeployment, ResolvedPackage, parse, resolve};
use oprc_unit::{Identity, Platform, Profile, admit};
use proptest::{prelude::*, sample::select, test_runner::TestRunner};

use super::{ClusterFacts, cluster, clusters, planned};

#[path = "../../../../../tests/support/proof.rs"]
#[allow(dead_code, unreachable_pub)]
mod proofs;

fn maybe(line: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    prop_oneof![2 => Just(String::new()), 1 => line]
}

fn any_platform() -> impl Strategy<Value = Platform> {
    let profile = select(vec![Profile::Dev, Profile::Edge, Profile::Full]);
    let floors = (1..200i32, 1..200i32, 1..5000i32);
    let default = proptest::option::of(select(vec!["k8s_deployment", "knative", "unified"]));
    (profile, any::<[bool; 5]>(), floors, 1..1200u64, default).prop_map(
        |(profile, [odgm, hpa, knative, detected, autoscaling], floors, timeout, default)| {
            let mut platform = Platform::of(profile);
            platform.features = oprc_unit::Features { odgm, hpa, knative };
            platform.knative = detected;
            platform.autoscaling = autoscaling;
            (
                platform.floors.k8s_deployment,
                platform.floors.knative_warm,
                platform.floors.knative_cold,
            ) = floors;
            platform.knative_timeout = std::time::Duration::from_secs(timeout);
            platform.default_template = default.map(str::to_owned);
            platform
        },
    )
}

fn requirements() -> impl Strategy<Value = String> {
    let throughput = maybe((0..30_000i32).prop_map(|it| format!("throughput: {it}, ")));
    let latency = maybe((1..1000i32).prop_map(|it| format!("latency: {it}, ")));
    let availability = maybe(
        select(vec!["0.5", "0.9", "0.99", "0.999", "0.9999"])
            .prop_map(|it| format!("availability: {it}, ")),
    );
    let consistency =
        maybe(select(vec!["STRONG", "EVENTUAL"]).prop_map(|it| format!("consistency: {it}, ")));
    (throughput, latency, availability, consistency)
        .prop_map(|(a, b, c, d)| format!("requirements: {{{a}{b}{c}{d}}}"))
}

fn function(key: &'static str) -> impl Strategy<Value = String> {
    let form = select(vec!["docker", "knative", "deployment"]);
    let port =
        maybe(select(vec![80, 8080, 9090, 8012, 50051]).prop_map(|it| format!(", port: {it}")));
    let bounds =
        maybe((0..4i32, 0..20i32).prop_map(|(min, more)| {
            format!(", minScale: {min}, maxScale: {}", (min + more).max(1))
        }));
    let env = maybe(
        select(vec!["A", "K_SERVICE", "K_REVISION"]).prop_map(|it| format!(", env: {{{it}: x}}")),
    );
    let claim = maybe(Just(", volumes: [{mountPath: /a, claim: c}]".to_owned()));
    let timeout = maybe((1..900_000i32).prop_map(|it| format!("\n    config: {{timeout: {it}}}")));
    let hard =
        maybe((1..4000i32).prop_map(|it| format!("\n    constraints: {{hardLatency: {it}}}")));
    (form, port, bounds, env, claim, timeout, hard, requirements()).prop_map(
        move |(form, port, bounds, env, claim, timeout, hard, requirements)| {
            format!(
                "  - key: {key}\n    provision: {{{form}: {{image: i{port}{bounds}{env}{claim}}}}}\n    \
                 {requirements}{timeout}{hard}\n"
            )
        },
    )
}

fn deployment() -> impl Strategy<Value = String> {
    let template = maybe(
        select(vec!["k8s_deployment", "knative", "unified", "job", "dev", "full"])
            .prop_map(|it| format!(", template: {it}")),
    );
    let copies = maybe((1..5i32).prop_map(|it| format!(", replicaCount: {it}")));
    let shard = maybe(select(vec!["RAFT", "BASIC"]).prop_map(|it| format!(", shardType: {it}")));
    let standby = maybe(
        select(vec!["standbyFn", "disabledFn"])
            .prop_map(|it| format!(", members: [{{id: 1, {it}: [f]}}]")),
    );
    let collections =
        maybe(Just(", odgm: {collections: [a, {name: b, replicaCount: 2}]}".to_owned()));
    (template, copies, shard, standby, collections)
        .prop_map(|(a, b, c, d, e)| format!("  - {{key: d, class: C{a}{b}{c}{d}{e}}}\n"))
}

fn any_file() -> impl Strategy<Value = String> {
    let state = maybe(
        (
            select(vec!["NORMAL", "COLLECTION", "SINGLETON"]),
            maybe(Just("consistency: STRONG".to_owned())),
        )
            .prop_map(|(kind, more)| format!("    stateType: {kind}\n    stateSpec: {{{more}}}\n")),
    );
    (function("f"), function("g"), requirements(), state, deployment()).prop_map(
        |(f, g, requirements, state, deployment)| {
            format!(
                "name: p\nversion: 1.0.0\nfunctions:\n{f}{g}classes:\n  - key: C\n    \
                 functions: [{{name: f, function: f}}, {{name: g, function: g}}]\n    \
                 {requirements}\n{state}deployments:\n{deployment}"
            )
        },
    )
}

/// The package and deployment of a file; none where the file itself is rejected.
fn read(text: &str) -> Option<(ResolvedPackage, OClassDeployment)> {
    let documents = parse(text, "file.yaml").unwrap_or_else(|it| panic!("{it}\n{text}"));
    documents[0].check().ok()?;
    let Body::Package(package) = &documents[0].body else { panic!("no package") };
    let resolved = resolve(package, &()).ok()?;
    Some((resolved, package.deployments[0].clone()))
}

/// The number of cases that were planned.
fn run(cases: u32) -> usize {
    let mut config = ProptestConfig::with_cases(cases);
    config.failure_persistence = None;
    let count = std::cell::Cell::new(0);
    TestRunner::new(config)
        .run(
            &(any_file(), any_platform(), proptest::option::of(0.9..1.0f64)),
            |(text, platform, node)| {
                let Some((package, deployment)) = read(&text) else { return Ok(()) };
                let facts = ClusterFacts {
                    platform: Some(platform.clone()),
                    node_availability: node,
                    ..cluster()
                };
                let Ok(plan) = planned(&package, &deployment, &clusters([("a", facts)])) else {
                    return Ok(());
                };
                count.set(count.get() + 1);
                for unit in &plan.units {
                    let spec = from_wire(&to_wire(&unit.spec).unwrap()).unwrap();
                    prop_assert_eq!(&spec, &unit.spec);
                    let identity = Identity::for_unit(&unit.id, "ns", None);
                    match admit(identity, &spec, &platform) {
                        Ok(admitted) => prop_assert_eq!(
                            unit.template.as_deref(),
                            Some(admitted.selection.template.as_str()),
                            "{}",
                            text
                        ),
                        Err(rejection) => prop_assert!(false, "{rejection:?}\n{text}"),
                    }
                    prop_assert_eq!(unit.scores.len(), 3);
                }
                Ok(())
            },
        )
        .unwrap_or_else(|error| panic!("{error}"));
    count.get()
}

#[test]
fn crm_admits_every_plan_and_selects_the_planned_template() {
    let proof = proofs::begin("random deployments, planned by PM and admitted by CRM", 500, 10_000);
    let rounds = proof.rounds;
    let planned = run(u32::try_from(rounds).unwrap());
    assert!(planned > rounds / 5, "only {planned} of {rounds} random deployments could be planned");
    let rejected = rounds - planned;
    proof.held(&format!(
        "{planned} planned, all admitted with the planned template; {rejected} rejected by PM"
    ));
}
