//! Plan of a class's data grid: collections, partitions, replicas and triggers.

use serde_json::{Value, json};

use super::{check, check_in, plain, platform, with};
use crate::{
    class::{CollectionPlan, OdgmPlan},
    platform::{Platform, Profile},
    spec::{AccessPattern, PersistenceMode, ShardType},
};

/// A class with a data grid.
fn grid(config: &Value) -> Value {
    let spec = with(&plain(), "/addons", json!(["odgm"]));
    with(&spec, "/odgm_config", config.clone())
}

fn plan(spec: &Value) -> OdgmPlan {
    check(spec).unwrap().odgm.expect("it has a grid")
}

fn only(spec: &Value) -> CollectionPlan {
    let mut plan = plan(spec);
    assert_eq!(plan.collections.len(), 1);
    plan.collections.remove(0)
}

#[test]
fn requires_the_addon_and_the_feature() {
    let spec = with(&plain(), "/odgm_config", json!({"collections": ["a"]}));
    assert_eq!(check(&spec).unwrap().odgm, None, "without the addon there is none");

    let mut off = platform();
    off.features.odgm = false;
    let rejection = check_in(&grid(&json!({})), &off).unwrap_err();
    assert_eq!((rejection.reason.as_str(), rejection.precondition), ("OdgmDisabled", true));
    assert_eq!(rejection.violations[0].field, "addons");
    check_in(&spec, &off).unwrap();
}

#[test]
fn violations_name_the_field() {
    for (config, field) in [
        (json!({"requests": {"cpu": "x"}}), "odgm_config.requests.cpu"),
        (json!({"limits": {"memory": "x"}}), "odgm_config.limits.memory"),
        (json!({"storage": {"size": "x"}}), "odgm_config.storage.size"),
        (json!({"env": [{"name": "ODGM_LOG"}]}), "odgm_config.env[0].name"),
        (json!({"env": [{"name": "OPRC_ZENOH_PORT"}]}), "odgm_config.env[0].name"),
        (json!({"env": [{"name": "no name"}]}), "odgm_config.env[0].name"),
        (json!({"env": [{"name": "A"}, {"name": "A"}]}), "odgm_config.env[1].name"),
        (json!({"collections": ["a,b"]}), "odgm_config.collections[0].name"),
        (json!({"collections": [""]}), "odgm_config.collections[0].name"),
        (json!({"collections": ["a", {"name": "a"}]}), "odgm_config.collections[1]"),
        (
            json!({"collections": [{"name": "a", "partition_count": 0}]}),
            "odgm_config.collections[0].partition_count",
        ),
        (
            json!({"collections": [{"name": "a", "replica_count": 100}]}),
            "odgm_config.collections[0].replica_count",
        ),
        (
            json!({"collections": [{"name": "a", "shard_assignments": [{"primary": -1}]}]}),
            "odgm_config.collections[0].shard_assignments[0].primary",
        ),
        (
            json!({"collections": (0..65).map(|at| format!("c{at}")).collect::<Vec<_>>()}),
            "odgm_config.collections",
        ),
        (
            json!({"event_processing": {"event_triggers": [{"function_key": "nobody"}]}}),
            "odgm_config.event_processing.event_triggers[0].function_key",
        ),
    ] {
        let rejection = check(&grid(&config)).unwrap_err();
        let fields: Vec<_> = rejection.violations.iter().map(|it| it.field.as_str()).collect();
        assert_eq!(fields, [field], "{config}");
    }
}

#[test]
fn default_collection_depends_on_the_state_type() {
    let by = |kind: &str| {
        let spec = with(&grid(&json!({"replicas": 5})), "/state", json!({"state_type": kind}));
        // A low throughput alone gives one partition.
        let spec = with(&spec, "/nfr_requirements/min_throughput_rps", json!(10));
        let spec = with(&spec, "/deployment_unit", json!({"id": "unit-1", "class": "Cart"}));
        let found = only(&spec);
        (found.name, found.partitions, found.replicas, found.access_patterns)
    };
    let plain = vec![AccessPattern::ReadWrite];
    let batch = vec![AccessPattern::ReadWrite, AccessPattern::BatchRead];
    assert_eq!(by("SINGLETON"), ("Cart_singleton".to_owned(), 1, 3, plain.clone()));
    assert_eq!(by("COLLECTION"), ("Cart_collection".to_owned(), 4, 3, batch));
    assert_eq!(by("NORMAL"), ("Cart_data".to_owned(), 1, 3, plain));
}

#[test]
fn named_collections_replace_the_default() {
    let spec = with(
        &grid(&json!({"collections": ["a", {"name": "b", "partition_count": 7}]})),
        "/state",
        json!({}),
    );
    let found: Vec<_> =
        plan(&spec).collections.iter().map(|it| (it.name.clone(), it.partitions)).collect();
    assert_eq!(found, [("a".to_owned(), 4), ("b".to_owned(), 7)]);
    assert_eq!(plan(&grid(&json!({}))).collections, [], "a class without state has no collection");
}

#[test]
fn partition_count_depends_on_throughput() {
    let by = |rps: Option<i32>| {
        let spec = grid(&json!({"collections": ["a"]}));
        let spec = match rps {
            Some(rps) => with(&spec, "/nfr_requirements/min_throughput_rps", json!(rps)),
            None => spec,
        };
        only(&spec).partitions
    };
    assert_eq!(by(None), 4);
    for (rps, partitions) in
        [(0, 1), (1000, 1), (1001, 4), (5000, 4), (5001, 8), (20_000, 8), (20_001, 16)]
    {
        assert_eq!(by(Some(rps)), partitions, "{rps}");
    }
    let explicit = with(
        &grid(&json!({"collections": ["a"], "partition_count": 3})),
        "/nfr_requirements/min_throughput_rps",
        json!(99_999),
    );
    assert_eq!(only(&explicit).partitions, 3);
}

#[test]
fn shard_type_depends_on_replicas_latency_and_consistency() {
    let by = |replicas: i32, latency: Option<i32>, consistency: Option<&str>| {
        let spec = grid(&json!({"collections": ["a"], "replicas": replicas}));
        let mut spec = with(&spec, "/nfr_requirements", json!({}));
        if let Some(latency) = latency {
            spec["nfr_requirements"]["max_latency_ms"] = json!(latency);
        }
        if let Some(consistency) = consistency {
            spec["nfr_requirements"]["consistency"] = json!(consistency);
        }
        only(&spec).shard_type
    };
    assert_eq!(by(1, None, None), ShardType::Basic);
    assert_eq!(by(1, None, Some("strong")), ShardType::Basic, "one copy always agrees with itself");
    assert_eq!(by(3, None, None), ShardType::Raft);
    assert_eq!(by(3, Some(49), None), ShardType::Basic);
    assert_eq!(by(3, Some(50), None), ShardType::Raft);
    assert_eq!(by(3, Some(49), Some("strong")), ShardType::Raft);
    assert_eq!(by(3, None, Some("eventual")), ShardType::Basic);
    let explicit =
        json!({"collections": ["a", {"name": "b", "shard_type": "basic"}], "shard_type": "mst"});
    let found = plan(&grid(&explicit)).collections;
    assert_eq!((found[0].shard_type, found[1].shard_type), (ShardType::Mst, ShardType::Basic));
}

#[test]
fn consistency_of_the_state_overrides_requirements() {
    let spec = grid(&json!({"collections": ["a"], "replicas": 3}));
    let spec = with(&spec, "/nfr_requirements/consistency", json!("strong"));
    let spec = with(&spec, "/state/consistency", json!("eventual"));
    assert_eq!(only(&spec).shard_type, ShardType::Basic);
}

#[test]
fn replicas_are_limited_by_the_number_of_nodes() {
    let collection = json!({"name": "a", "replica_count": 5, "shard_type": "basic"});
    let spec = grid(&json!({"collections": [collection], "replicas": 2}));
    assert_eq!((plan(&spec).replicas, only(&spec).replicas), (2, 2));
    // The replication factor is a minimum for the number of nodes.
    let spec = with(&spec, "/resource_allocation/replication_factor", json!(3));
    assert_eq!((plan(&spec).replicas, only(&spec).replicas), (3, 3));
    let spec = with(&spec, "/resource_allocation/replication_factor", json!(1));
    assert_eq!(plan(&spec).replicas, 2);
}

#[test]
fn two_copies_under_consensus_become_three() {
    let by = |config: Value| {
        let spec = grid(&config);
        (
            plan(&spec).replicas,
            plan(&spec).collections.iter().map(|it| it.replicas).collect::<Vec<_>>(),
        )
    };
    let raft = json!({"collections": ["a"], "replicas": 2, "shard_type": "raft"});
    assert_eq!(by(raft), (3, vec![3]));
    // By default copies agree by consensus.
    assert_eq!(by(json!({"collections": ["a"], "replicas": 2})), (3, vec![3]));
    let mixed = json!({"replicas": 2, "collections": [
        {"name": "a", "shard_type": "raft", "replica_count": 2},
        {"name": "b", "shard_type": "basic", "replica_count": 2},
    ]});
    assert_eq!(by(mixed), (3, vec![3, 2]));
    assert_eq!(by(json!({"collections": ["a"], "replicas": 2, "shard_type": "mst"})), (2, vec![2]));
    assert_eq!(
        by(json!({"collections": ["a"], "replicas": 1, "shard_type": "raft"})),
        (1, vec![1])
    );
    assert_eq!(by(json!({"collections": ["a"], "replicas": 4, "shard_type": "raft"})).0, 4);
}

/// Classes created by `kubectl` or plain gRPC have no plan: the same rules apply to them.
#[test]
fn availability_sets_copies_where_no_plan_does() {
    let spec =
        with(&grid(&json!({"collections": ["a"]})), "/nfr_requirements/availability", json!(0.999));
    assert_eq!(plan(&spec).replicas, 3);
    let planned = with(&spec, "/resource_allocation/replication_factor", json!(1));
    assert_eq!(plan(&planned).replicas, 1);
    let by_function = with(
        &grid(&json!({"collections": ["a"]})),
        "/functions/0/requirements",
        json!({"availability": 0.999}),
    );
    assert_eq!(plan(&by_function).replicas, 3);
}

#[test]
fn data_is_persistent_in_the_full_profile_or_on_request() {
    let by = |profile: Profile, spec: &Value| {
        let mut environment = Platform::of(profile);
        environment.features.odgm = true;
        check_in(spec, &environment).unwrap().odgm.unwrap().collections[0].persistence
    };
    let spec = grid(&json!({"collections": ["a"]}));
    assert_eq!(by(Profile::Full, &spec), PersistenceMode::Persistent);
    assert_eq!(by(Profile::Edge, &spec), PersistenceMode::Ephemeral);
    assert_eq!(by(Profile::Dev, &spec), PersistenceMode::Ephemeral);
    let full = with(&spec, "/selected_template", json!("full"));
    assert_eq!(by(Profile::Dev, &full), PersistenceMode::Persistent);
    let explicit = with(&spec, "/state/persistence", json!("persistent"));
    assert_eq!(by(Profile::Dev, &explicit), PersistenceMode::Persistent);
    let own = json!({"collections": [{"name": "a", "persistence_mode": "ephemeral"}]});
    assert_eq!(by(Profile::Full, &grid(&own)), PersistenceMode::Ephemeral);
}

#[test]
fn bindings_create_triggers() {
    let mut spec = grid(&json!({"collections": ["a"]}));
    spec["functions"][0]["bindings"] = json!([
        {"name": "x"},
        {"name": "y", "trigger_on_state_change": true, "async_execution": true},
    ]);
    let found = plan(&spec);
    assert!(found.events);
    assert_eq!(found.triggers.len(), 1);
    assert_eq!(found.triggers[0].function_key, "f");
    assert_eq!(found.triggers[0].collection_filters, ["a"]);
    assert!(found.triggers[0].async_execution);

    // A disabled function has no triggers.
    let off = with(&spec, "/disabled_functions", json!(["f"]));
    assert_eq!(plan(&off).triggers, []);
}

/// The key of the single function is the name of the class.
#[test]
fn a_trigger_may_name_the_single_function() {
    let config = json!({"event_processing": {"event_triggers": [{"function_key": "shop"}]}});
    let spec = json!({"function": {"image": "img"}, "addons": ["odgm"], "odgm_config": config});
    assert_eq!(plan(&spec).triggers[0].function_key, "shop");
}

/// The layout of stored data doesn't change when a function is disabled.
#[test]
fn requirements_of_disabled_functions_count() {
    let mut spec = grid(&json!({"collections": ["a"], "replicas": 3}));
    spec["functions"][0]["requirements"] =
        json!({"min_throughput_rps": 9000, "max_latency_ms": 20});
    let off = with(&spec, "/disabled_functions", json!(["f"]));
    assert_eq!(only(&spec).partitions, 8);
    assert_eq!(only(&off), only(&spec));

    // The same holds for a class without functions.
    let mut none = grid(&json!({"collections": ["a"], "replicas": 3}));
    none["functions"] = json!([]);
    let none = with(&none, "/nfr_requirements", json!({"min_throughput_rps": 9000}));
    assert_eq!(only(&none).partitions, 8);
}

#[test]
fn the_strictest_consistency_applies() {
    let mut spec = grid(&json!({"collections": ["a"], "replicas": 3}));
    spec["nfr_requirements"] = json!({"consistency": "eventual"});
    assert_eq!(only(&spec).shard_type, ShardType::Basic);
    spec["functions"][0]["requirements"] = json!({"consistency": "strong"});
    assert_eq!(only(&spec).shard_type, ShardType::Raft);
}

#[test]
fn rejects_functions_that_use_unknown_collections() {
    let mut spec = grid(&json!({"collections": ["a", "b"]}));
    spec["functions"][0]["odgm"] = json!({"collections": ["b"]});
    check(&spec).unwrap();
    for unknown in ["c", "a,b"] {
        spec["functions"][0]["odgm"] = json!({"collections": [unknown]});
        let rejection = check(&spec).unwrap_err();
        assert_eq!(rejection.violations[0].field, "functions[0].odgm.collections");
        assert!(rejection.message.contains("it has: a, b"), "{}", rejection.message);
    }
}

#[test]
fn changes_are_batched_by_default() {
    let by = |batch: &Value| {
        let events = json!({"event_processing": {"batch_processing": batch}});
        plan(&grid(&events)).batch
    };
    assert_eq!(plan(&grid(&json!({}))).batch, Some((100, 1000)));
    assert_eq!(by(&json!({})), Some((100, 1000)));
    assert_eq!(by(&json!({"batch_size": 5})), Some((5, 1000)));
    assert_eq!(by(&json!({"enabled": false, "batch_size": 5})), None);
}

#[test]
fn node_ids_contain_environment_and_package() {
    let spec = with(&grid(&json!({})), "/deployment_unit", json!({"id": "u", "package": "store"}));
    assert_eq!(plan(&spec).node_id_prefix, "crm-prod-store");
}
