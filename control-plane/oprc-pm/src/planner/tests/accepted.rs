//! CRM takes whatever is planned: read by its own types, and parsed by its own rules.

use oprc_rest::Plan;
use oprc_unit::{Identity, Platform, Profile, UnitSpec, validate};

use super::{cluster, clusters, example, planned, shop};

fn accepted(plan: &Plan) {
    assert!(!plan.units.is_empty());
    for unit in &plan.units {
        // CRM gets the message, and reads what that says.
        let message = serde_json::to_value(super::spec(unit)).unwrap();
        let message = without_nulls(message);
        let spec: UnitSpec = serde_json::from_value(message.clone())
            .unwrap_or_else(|error| panic!("{}: {error}: {message}", unit.id));
        let identity = Identity::for_unit(&unit.id, "default", spec.target_environment.as_deref());
        let mut environment = Platform::of(Profile::Full);
        environment.features.odgm = true;
        let class = validate(Profile::Full, identity, &spec, &environment)
            .unwrap_or_else(|rejection| panic!("{}: {rejection:?}", unit.id));
        // Nothing is lost on the way: what is planned is what CRM comes to.
        if let (Some(grid), Some(config)) = (&class.odgm, &spec.odgm_config) {
            let own = grid.collections.iter().filter(|it| it.name.starts_with(&unit.class));
            for collection in own {
                assert_eq!(Some(collection.partitions), config.partition_count, "{}", unit.id);
                assert_eq!(Some(collection.replicas), config.replica_count, "{}", unit.id);
            }
        }
    }
}

fn without_nulls(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, without_nulls(value)))
            .collect(),
        Value::Array(all) => all.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

#[test]
fn examples() {
    for name in ["hello", "counter", "shapes"] {
        let (package, deployments) = example(name);
        for deployment in deployments {
            accepted(&planned(&package, &deployment, &clusters([("a", cluster())])).unwrap());
        }
    }
}

#[test]
fn everything_at_once() {
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
