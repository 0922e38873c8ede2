//! CRM admits plans and selects the planned template.

use oprc_grpc::unit::{from_wire, to_wire};
use oprc_rest::Plan;
use oprc_unit::{Identity, Profile, admit};

use super::{cluster, clusters, example, planned, platform, shop};

fn accepted(plan: &Plan) {
    assert!(!plan.units.is_empty());
    for unit in &plan.units {
        let spec = from_wire(&to_wire(&unit.spec).unwrap()).unwrap();
        assert_eq!(spec, unit.spec, "{}", unit.id);
        let identity = Identity::for_unit(&unit.id, "default", spec.target_environment.as_deref());
        let admitted = admit(identity, &spec, &platform(Profile::Dev))
            .unwrap_or_else(|rejection| panic!("{}: {rejection:?}", unit.id));
        let template = admitted.selection.template.as_str();
        assert_eq!(unit.template.as_deref(), Some(template), "{}", unit.id);
        // CRM calculates the same numbers.
        if let (Some(grid), Some(config)) = (&admitted.class.odgm, &spec.odgm_config) {
            let own = grid.collections.iter().filter(|it| it.name.starts_with(&unit.class));
            for collection in own {
                assert_eq!(Some(collection.partitions), config.partition_count, "{}", unit.id);
                assert_eq!(Some(collection.replicas), config.replica_count, "{}", unit.id);
            }
        }
    }
}

#[test]
fn plans_of_examples_are_accepted() {
    for name in ["hello", "counter", "shapes"] {
        let (package, deployments) = example(name);
        for deployment in deployments {
            accepted(&planned(&package, &deployment, &clusters([("a", cluster())])).unwrap());
        }
    }
}

#[test]
fn plan_with_every_setting_is_accepted() {
    for class in [
        "",
        "    stateSpec: {}",
        "    stateType: SINGLETON\n    stateSpec: {consistency: STRONG}",
        "    stateType: COLLECTION\n    stateSpec: {}\n    requirements: {availability: 0.999, throughput: 100}",
        "    stateSpec: {defaultProvider: NONE}\n    requirements: {availabilityPct: 99.9}",
    ] {
        for more in [
            "",
            "    replicaCount: 2",
            "    members: [{id: 1, cluster: a, disabledFn: [buy], standbyFn: [sell]}, {id: 2, cluster: b, forceTemplate: unified}]",
            "    targetClusters: [a, b]\n    targetEnvs: [dev, prod]\n    rollbackOnFailure: true\n    template: deployment\n    enforcement: {mode: ENFORCE}\n    options: {paused: true, metrics: false}",
        ] {
            let (package, deployment) = shop(class, more);
            let clusters = clusters([("a", cluster()), ("b", cluster())]);
            accepted(&planned(&package, &deployment, &clusters).unwrap());
        }
    }
}
