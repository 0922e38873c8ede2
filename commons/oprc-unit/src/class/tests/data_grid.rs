//! Plan of a class's data grid: collections, partitions, replicas and triggers.

use serde_json::{Value, json};

use super::{check, check_in, plain, platform, with};
use crate::{
    class::{CollectionPlan, OdgmPlan},
    platform::{Platform, Profile},
    spec::{Access, AccessPattern, PersistenceMode, ShardType, TriggerType},
};

/// A class with a data grid.
pub(super) fn grid(config: &Value) -> Value {
    let spec = with(&plain(), "/addons", json!(["odgm"]));
    with(&spec, "/odgm_config", config.clone())
}

pub(super) fn plan(spec: &Value) -> OdgmPlan {
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
        (json!({"replicas": 3, "storage": {"size": "100Mi"}}), "odgm_config.storage.size"),
        (json!({"env": [{"name": "ODGM_LOG"}]}), "odgm_config.env[0].name"),
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
    assert_eq!(by("SINGLETON"), ("Cart_singleton".to_owned(), 1, 5, plain.clone()));
    assert_eq!(by("COLLECTION"), ("Cart_collection".to_owned(), 4, 5, batch));
    assert_eq!(by("NORMAL"), ("Cart_data".to_owned(), 1, 5, plain));
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
    assert_eq!(only(&grid(&json!({}))).name, "shop_data");
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
fn several_copies_mean_raft_with_an_odd_number_of_nodes() {
    let by = |config: Value| {
        let plan = plan(&grid(&config));
        let collection = plan.collections[0].clone();
        assert_eq!((collection.shard_type, collection.replicas), (plan.engine, plan.replicas));
        (plan.engine, plan.replicas, plan.needed())
    };
    assert_eq!(by(json!({"collections": ["a"]})), (ShardType::Basic, 1, 1));
    assert_eq!(by(json!({"shard_type": "basic"})), (ShardType::Basic, 1, 1));
    assert_eq!(by(json!({"replicas": 2})), (ShardType::Raft, 3, 2));
    assert_eq!(by(json!({"replicas": 4})), (ShardType::Raft, 5, 3));
    assert_eq!(by(json!({"replicas": 98})), (ShardType::Raft, 99, 50));
    assert_eq!(by(json!({"shard_type": "raft"})), (ShardType::Raft, 3, 2));
    assert_eq!(by(json!({"replica_count": 3})), (ShardType::Raft, 3, 2));
    let own = json!({"collections": ["b", {"name": "a", "replica_count": 5}]});
    assert_eq!(by(own), (ShardType::Raft, 5, 3));
    let own = json!({"collections": ["b", {"name": "a", "shard_type": "raft"}]});
    assert_eq!(by(own), (ShardType::Raft, 3, 2));
    // Neither latency nor consistency allow several copies without consensus.
    let spec = with(&grid(&json!({"replicas": 3})), "/nfr_requirements/max_latency_ms", json!(20));
    let spec = with(&spec, "/state/consistency", json!("eventual"));
    assert_eq!(plan(&spec).engine, ShardType::Raft);
}

#[test]
fn the_largest_number_of_copies_applies() {
    let spec = grid(&json!({"collections": ["a"], "replicas": 3}));
    let spec = with(&spec, "/resource_allocation/replication_factor", json!(5));
    assert_eq!((plan(&spec).replicas, only(&spec).replicas), (5, 5));
    let spec = with(&spec, "/resource_allocation/replication_factor", json!(1));
    assert_eq!(plan(&spec).replicas, 3);
}

#[test]
fn an_engine_that_cannot_do_what_is_asked_is_rejected_with_the_reason() {
    for (config, field, reason) in [
        (json!({"shard_type": "mst"}), "odgm_config.shard_type", "mst isn't supported"),
        (
            json!({"collections": [{"name": "a", "shard_type": "mst"}]}),
            "odgm_config.collections[0].shard_type",
            "mst isn't supported",
        ),
        (
            json!({"shard_type": "basic", "replicas": 2}),
            "odgm_config.shard_type",
            "basic keeps one copy, but 2 are required",
        ),
        (
            json!({"collections": [{"name": "a", "shard_type": "basic", "replica_count": 3}]}),
            "odgm_config.collections[0].shard_type",
            "basic keeps one copy, but 3 are required",
        ),
        (
            json!({"collections": [
                {"name": "a", "shard_type": "basic"}, {"name": "b", "shard_type": "raft"},
            ]}),
            "odgm_config.collections[1].shard_type",
            "set the same shard_type for all",
        ),
        (
            json!({"shard_type": "raft", "collections": [{"name": "a", "shard_type": "basic"}]}),
            "odgm_config.collections[0].shard_type",
            "set the same shard_type for all",
        ),
        (
            json!({"collections": [
                {"name": "a", "persistence_mode": "persistent"},
                {"name": "b", "persistence_mode": "ephemeral"},
            ]}),
            "odgm_config.collections[1].persistence_mode",
            "set the same persistence for all",
        ),
        (
            json!({"replicas": 3, "collections": [{"name": "a", "persistence_mode": "ephemeral"}]}),
            "odgm_config.collections[0].persistence_mode",
            "raft stores its log on volumes",
        ),
    ] {
        let rejection = check(&grid(&config)).unwrap_err();
        let fields: Vec<_> = rejection.violations.iter().map(|it| it.field.as_str()).collect();
        assert_eq!(fields, [field], "{config}");
        assert!(rejection.message.contains(reason), "{}", rejection.message);
    }
    let spec = with(&grid(&json!({"replicas": 3})), "/state/persistence", json!("ephemeral"));
    assert_eq!(check(&spec).unwrap_err().violations[0].field, "state.persistence");
    let spec = with(
        &grid(&json!({"shard_type": "basic"})),
        "/nfr_requirements/availability",
        json!(0.999),
    );
    assert!(check(&spec).unwrap_err().message.contains("but 3 are required"));
}

/// A member without a volume would be lost with its pod.
#[test]
fn raft_is_persistent_in_every_profile() {
    for profile in [Profile::Dev, Profile::Edge, Profile::Full] {
        let mut environment = Platform::of(profile);
        environment.features.odgm = true;
        let plan = check_in(&grid(&json!({"replicas": 3})), &environment).unwrap().odgm.unwrap();
        assert!(plan.persistent() && plan.stateful());
    }
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
    assert_eq!(found.triggers[0].method, "y");
    assert_eq!(found.triggers[0].collections, ["a"]);
    assert!(found.triggers[0].async_execution);

    // A disabled function has no triggers.
    let off = with(&spec, "/disabled_functions", json!(["f"]));
    assert_eq!(plan(&off).triggers, []);
}

#[test]
fn functions_have_triggers_of_their_own() {
    let config = json!({"event_processing": {"event_triggers": [
        {"function_key": "f", "trigger_type": "CREATE"}, {"function_key": "f"},
    ]}});
    let mut spec = grid(&config);
    spec["odgm_config"]["collections"] = json!(["a", "b"]);
    spec["functions"][0]["bindings"] =
        json!([{"name": "x"}, {"name": "y", "condition": "args.n > 0"}]);
    spec["functions"][0]["odgm"] = json!({"collections": ["b"], "event_triggers": [
        {},
        {"method": "y", "trigger_type": "DELETE", "collection_filters": ["a"], "async_execution": true},
    ]});
    let found = plan(&spec);
    assert!(found.events);
    let condition = Some("args.n > 0");
    let triggers: Vec<_> = found
        .triggers
        .iter()
        .map(|it| {
            let collections = it.collections.join(",");
            let condition = it.condition.as_deref();
            (it.method.as_str(), it.trigger_type, collections, it.async_execution, condition)
        })
        .collect();
    let expected = [
        ("x", TriggerType::StateChange, "b".to_owned(), false, None),
        ("y", TriggerType::Delete, "a".to_owned(), true, condition),
        ("x", TriggerType::Create, String::new(), false, None),
        ("x", TriggerType::StateChange, String::new(), false, None),
    ];
    assert_eq!(triggers, expected);

    let unknown = with(&spec, "/functions/0/odgm/event_triggers/1/method", json!("z"));
    let rejection = check(&unknown).unwrap_err();
    let violation = &rejection.violations[0];
    assert_eq!(violation.field, "functions[0].odgm.event_triggers[1].method");
    assert!(violation.message.contains("it has: x, y"), "{violation:?}");
    // A disabled function has no triggers.
    spec["odgm_config"]["event_processing"] = Value::Null;
    let off = with(&spec, "/disabled_functions", json!(["f"]));
    assert_eq!(plan(&off).triggers, []);
}

/// The key of the single function is the name of the class.
#[test]
fn a_trigger_may_name_the_single_function() {
    let config = json!({"event_processing": {"event_triggers": [{"function_key": "shop"}]}});
    let spec = json!({"function": {"image": "img"}, "addons": ["odgm"], "odgm_config": config});
    assert_eq!(plan(&spec).triggers[0].method, "shop");
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
fn methods_are_bindings_or_functions_without_any() {
    let mut spec = grid(&json!({"event_processing": {"event_triggers": [{"function_key": "f"}]}}));
    spec["functions"] = json!([
        {"key": "f", "image": "i", "access": "PUBLIC", "bindings": [
            {"name": "x", "condition": "args.n > 0"},
            {"name": "y", "access": "PRIVATE"},
        ]},
        {"key": "g", "image": "i", "access": "PRIVATE"},
        {"key": "off", "image": "i"},
        {"key": "m", "type": "MACRO", "macro": {"steps": [
            {"method": "x", "as": "one", "arg_refs": {"a": "$args.a"}},
            {"method": "off"},
            {"method": "elsewhere", "target": "$.friend", "inputs": ["one.key", "$.count"]},
        ], "output": "one"}},
    ]);
    spec["disabled_functions"] = json!(["off"]);
    let found = plan(&spec);
    let methods: Vec<_> = found
        .methods
        .iter()
        .map(|it| (it.name.as_str(), it.function.as_str(), it.access, it.condition.as_deref()))
        .collect();
    let expected = [
        ("x", "f", Access::Public, Some("args.n > 0")),
        ("y", "f", Access::Private, None),
        ("g", "g", Access::Private, None),
    ];
    assert_eq!(methods, expected);
    assert_eq!((found.macros.len(), found.macros[0].name.as_str()), (1, "m"));
    assert_eq!(found.triggers[0].method, "x");
    for (pointer, value, field) in [
        ("/functions/1/bindings", json!([{"name": "x"}]), "functions[1].bindings[0].name"),
        ("/functions/1/key", json!("x"), "functions[1].key"),
        ("/functions/0/bindings/0/condition", json!("1 +"), "functions[0].bindings[0].condition"),
        ("/functions/3/macro/steps/0/method", json!("z"), "functions[3].macro.steps[0].method"),
        ("/functions/3/macro/steps/1/as", json!("one"), "functions[3].macro.steps[1].as"),
        ("/functions/3/macro/steps/0/target", json!("one"), "functions[3].macro.steps[0]"),
        ("/functions/3/macro/steps/0/target", json!("$x"), "functions[3].macro.steps[0]"),
        ("/functions/3/macro/output", json!("two"), "functions[3].macro.output"),
        ("/functions/3/macro", json!({}), "functions[3].macro.steps"),
        ("/functions/1/macro", json!({"steps": [{"method": "x"}]}), "functions[1].macro"),
    ] {
        let rejection = check(&with(&spec, pointer, value.clone())).unwrap_err();
        assert_eq!(rejection.violations[0].field, field, "{pointer}: {rejection:?}");
    }
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
