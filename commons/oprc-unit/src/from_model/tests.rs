//! Every field of a package and its deployment reaches the unit.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use oprc_models::{Body, Member, OClassDeployment, ResolvedPackage, parse, resolve};
use serde_json::{Value, json};

use super::{Source, grid_member, shard_assignments, unit_spec};

const FILE: &str = r#"
name: shop
version: 1.2.3
functions:
  - key: buy
    provision:
      knative:
        image: shop/buy:1
        port: 9000
        minScale: 0
        maxScale: 5
        cpu: 500m
        memory: 256Mi
        ephemeralStorage: 1Gi
        requestsCpu: 20m
        requestsMemory: 16Mi
        requestsEphemeralStorage: 1Mi
        env:
          PLAIN: "1"
          SECRET: {secret: {name: keys, key: api, optional: true}}
          MAPPED: {configMap: {name: settings, key: mode}}
        envFrom: [{secret: all, prefix: P_, optional: true}, {configMap: more}]
        pullPolicy: IfNotPresent
        pullSecrets: [registry]
        serviceAccount: shopper
        volumes:
          - {mountPath: /a, secret: keys, readOnly: true, subPath: x}
          - {mountPath: /b, emptyDir: {sizeLimit: 1Mi, inMemory: true}}
        command: [run]
        args: ["--fast"]
        security: {level: BASELINE, runAsUser: 1000}
        healthCheck: {path: /healthz, port: 9001, startupSeconds: 10, periodSeconds: 2, timeoutSeconds: 1, failureThreshold: 4}
    config: {timeout: 2000, retries: 2, env: {STEP: "1"}}
    requirements: {throughput: 50, latency: 200, availability: 0.99, consistency: STRONG}
    constraints: {hardLatency: 5000, maxConcurrency: 50}
    odgm: {collections: [things], accessMode: READ_ONLY, cachingStrategy: READ_THROUGH, eventTriggers: [{method: take, type: DELETE, collectionFilters: [things], async: true}, {}]}
  - {key: old, state: DISABLED, provision: {docker: {image: shop/old:1}}}
  - {key: rare, provision: {docker: {image: shop/rare:1}}}
  - {key: other, provision: {docker: {image: shop/other:1}}}
  - {key: lend, provision: {docker: {image: shop/lend:1}}}
  - {key: fetch, outputCls: Other, provision: {docker: {image: shop/fetch:1}}}
  - key: checkout
    type: MACRO
    macro:
      steps:
        - {function: buy, as: bought, args: {n: "1"}, argRefs: {to: $args.to}, inputs: [$.count]}
        - {function: lend, target: $.friend}
        - {function: fetch, as: fetched}
        - {function: lend, target: fetched}
      output: bought
classes:
  - key: Cart
    stateType: COLLECTION
    stateSpec:
      keySpecs: [{name: count, type: INTEGER, immutable: true}, {name: note, type: JSON, optional: true}]
      consistency: EVENTUAL
      persistence: EPHEMERAL
      accessPatterns: [READ_WRITE, BATCH_READ]
      access: PRIVATE
    refSpec: [{name: friend, class: Other}, {name: stranger, class: Away, access: PUBLIC}]
    functions:
      - {name: take, function: buy, access: PUBLIC, immutable: true, condition: "args.n > 0", triggerOnStateChange: true, asyncExecution: true}
      - {name: checkout, function: checkout}
      - {name: fetch, function: rare}
      - {name: old, function: old}
      - {name: rare, function: rare}
    requirements: {availabilityPct: 99.9}
    constraints: {hardLatency: 9000}
  - key: Other
    stateSpec: {}
    functions: [{name: other, function: other}, {name: another, function: lend}]
  - {key: Away, stateSpec: {}}
deployments:
  - key: shop
    classes: [Cart, Other]
    targetClusters: [one, two]
    partitionCount: 4
    replicaCount: 2
    shardType: MST
    template: unified
    rollbackOnFailure: true
    members:
      - {id: 1, cluster: one, standbyFn: [rare]}
      - {id: 2, cluster: two, disabledFn: [rare, other], forceTemplate: knative}
    assignments:
      - {primary: 1, owners: [1], shardIds: [0, 1]}
      - {primary: 2, owners: [2], shardIds: [2, 3]}
    odgm:
      collections: [{name: things, partitionCount: 2, replicaCount: 1, shardType: RAFT, persistence: PERSISTENT, accessPatterns: [WRITE_ONLY], assignments: [{primary: 2, owners: [2], shardIds: [0, 1]}]}]
      image: grid:1
      replicas: 3
      clusterId: us
      nodeIdPrefix: n
      events:
        enabled: true
        maxTriggerDepth: 3
        triggerTimeout: 500
        triggers: [{function: rare, triggerType: CREATE, collections: [things], async: true}, {function: other}]
        batch: {size: 10, timeout: 20}
      routes: {far: {url: "http://far", stateless: true, standby: true}}
      storage: {class: fast, size: 1Gi}
      cpu: 1
      memory: 1Gi
      requestsCpu: 100m
      requestsMemory: 64Mi
      env: {MORE: "2"}
      onDelete: DELETE
      allowDataLoss: true
    enforcement: {mode: ENFORCE, dimensions: [REPLICAS, CPU]}
    options: {progressDeadlineSeconds: 60, drainSeconds: 5, paused: true, metrics: false, metricsPath: /m, otlpEndpoint: "http://otlp"}
"#;

fn shop() -> (ResolvedPackage, OClassDeployment) {
    let documents = parse(FILE, "shop.yaml").unwrap_or_else(|faults| panic!("{faults}"));
    let Body::Package(package) = &documents[0].body else { panic!("no package") };
    documents[0].check().unwrap_or_else(|faults| panic!("{faults}"));
    let resolved = resolve(package, &()).unwrap_or_else(|faults| panic!("{faults}"));
    (resolved, package.deployments[0].clone())
}

fn unit(class: &str, member: usize) -> Value {
    let (package, deployment) = shop();
    let spec = unit_spec(&Source {
        id: "shop.Cart.prod..one",
        package: &package.name,
        version: &package.version,
        class: package.class(class).unwrap(),
        classes: &package.classes,
        deployment: &deployment,
        member: deployment.members.get(member),
        environment: "prod",
    });
    serde_json::to_value(spec).unwrap()
}

#[test]
fn every_field_reaches_the_unit() {
    let expected = json!({
        "deployment_unit": {"id": "shop.Cart.prod..one", "package": "shop", "package_version": "1.2.3", "class": "Cart"},
        "target_environment": "prod",
        "selected_template": "unified",
        "functions": [
            {
                "key": "buy", "type": "TASK", "image": "shop/buy:1", "port": 9000,
                "bindings": [{"name": "take", "access": "PUBLIC", "condition": "args.n > 0", "trigger_on_state_change": true, "async_execution": true}],
                "provision": {
                    "min_scale": 0, "max_scale": 5,
                    "requests": {"cpu": "20m", "memory": "16Mi", "ephemeral_storage": "1Mi"},
                    "limits": {"cpu": "500m", "memory": "256Mi", "ephemeral_storage": "1Gi"},
                    "env": [
                        {"name": "MAPPED", "config_map": {"name": "settings", "key": "mode"}},
                        {"name": "PLAIN", "value": "1"},
                        {"name": "SECRET", "secret": {"name": "keys", "key": "api", "optional": true}},
                    ],
                    "env_from": [{"secret": "all", "prefix": "P_", "optional": true}, {"config_map": "more"}],
                    "image_pull_policy": "IfNotPresent", "image_pull_secrets": ["registry"],
                    "service_account": "shopper",
                    "volume_mounts": [
                        {"mount_path": "/a", "secret": "keys", "read_only": true, "sub_path": "x"},
                        {"mount_path": "/b", "empty_dir": {"size_limit": "1Mi", "in_memory": true}},
                    ],
                    "command": ["run"], "args": ["--fast"],
                    "security": {"level": "baseline", "run_as_user": 1000},
                },
                "health_check": {"path": "/healthz", "port": 9001, "startup_seconds": 10, "period_seconds": 2, "timeout_seconds": 1, "failure_threshold": 4},
                "config": {"timeout_ms": 2000, "retries": 2, "env": {"STEP": "1"}},
                "requirements": {"min_throughput_rps": 50, "max_latency_ms": 200, "availability": 0.99, "consistency": "strong"},
                "constraints": {"hard_latency_ms": 5000, "max_concurrency": 50},
                "odgm": {"collections": ["things"], "access_mode": "read_only", "caching_strategy": "read_through", "event_triggers": [{"method": "take", "trigger_type": "DELETE", "collection_filters": ["things"], "async_execution": true}, {}]},
            },
            {
                "key": "checkout", "type": "MACRO", "bindings": [{"name": "checkout"}],
                "macro": {
                    "steps": [
                        {"method": "take", "as": "bought", "args": {"n": "1"}, "arg_refs": {"to": "$args.to"}, "inputs": ["$.count"]},
                        {"method": "another", "target": "$.friend"},
                        {"method": "shop.fetch", "as": "fetched"},
                        {"method": "another", "target": "fetched"},
                    ],
                    "output": "bought",
                },
            },
            {"key": "lend", "type": "TASK", "image": "shop/lend:1", "bindings": [{"name": "lend", "access": "PRIVATE"}]},
            {"key": "fetch", "type": "TASK", "image": "shop/fetch:1", "bindings": [{"name": "shop.fetch", "access": "PRIVATE"}]},
            {"key": "rare", "type": "TASK", "image": "shop/rare:1", "bindings": [{"name": "fetch"}, {"name": "rare"}]},
            {"key": "old", "type": "TASK", "image": "shop/old:1", "bindings": [{"name": "old"}]},
        ],
        "state": {"state_type": "COLLECTION", "consistency": "eventual", "persistence": "ephemeral", "access_patterns": ["read_write", "batch_read"], "key_specs": [{"name": "count", "type": "INTEGER", "immutable": true}, {"name": "note", "type": "JSON", "optional": true}], "access": "PRIVATE"},
        "references": [{"name": "friend", "class": "shop.Other", "unit": "shop.Other.prod..one"}, {"name": "stranger", "class": "shop.Away", "access": "PUBLIC"}],
        "nfr_requirements": {"availability_pct": 99.9},
        "constraints": {"hard_latency_ms": 9000},
        "nfr": {"enforcement": {"mode": "enforce", "dimensions": ["replicas", "cpu"]}},
        "addons": ["odgm"],
        "resource_allocation": {"replication_factor": 2},
        "odgm_config": {
            "collections": [{"name": "things", "partition_count": 2, "replica_count": 1, "shard_type": "raft", "persistence_mode": "persistent", "access_patterns": ["write_only"]}],
            "image": "grid:1", "replicas": 3, "partition_count": 4, "replica_count": 2, "shard_type": "mst",
            "cluster_id": "us", "node_id_prefix": "n",
            "event_processing": {
                "enabled": true, "max_trigger_depth": 3, "trigger_timeout_ms": 500,
                "event_triggers": [{"function_key": "rare", "collection_filters": ["things"], "async_execution": true, "trigger_type": "CREATE"}],
                "batch_processing": {"batch_size": 10, "batch_timeout_ms": 20},
            },
            "invocation_routes": {"far": {"url": "http://far", "stateless": true, "standby": true}},
            "storage": {"class": "fast", "size": "1Gi"},
            "requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "1Gi"},
            "env": [{"name": "MORE", "value": "2"}],
        },
        "data_retention": {"on_delete": "delete", "allow_data_loss": true},
        "disabled_functions": ["old"],
        "standby_functions": ["rare"],
        "telemetry": {"metrics": false, "metrics_path": "/m", "otlp_endpoint": "http://otlp"},
        "rollout": {"progress_deadline_seconds": 60, "rollback": true, "drain_seconds": 5},
        "paused": true,
    });
    assert_eq!(unit("Cart", 0), expected);
}

#[test]
fn a_unit_has_only_what_concerns_its_class_and_member() {
    let cart = unit("Cart", 1);
    assert_eq!(cart["selected_template"], "knative");
    assert_eq!(cart["disabled_functions"], json!(["old", "rare"]));
    assert_eq!(cart["standby_functions"], Value::Null);
    let grid = &cart["odgm_config"];
    assert_eq!(grid["event_processing"]["event_triggers"], Value::Null);
    let other = unit("Other", 0);
    assert_eq!(other["disabled_functions"], Value::Null);
    assert_eq!(
        other["odgm_config"]["event_processing"]["event_triggers"][0]["function_key"],
        "other"
    );
}

#[test]
fn partitions_are_grouped_by_member() {
    let found = serde_json::to_value(shard_assignments(&[2, 1, 2])).unwrap();
    let expected = json!([
        {"primary": 1, "owners": [1], "shard_ids": [1]},
        {"primary": 2, "owners": [2], "shard_ids": [0, 2]},
    ]);
    assert_eq!(found, expected);
    assert_eq!(shard_assignments(&[]), []);
}

#[test]
fn a_grid_member_has_its_place_and_url() {
    let url = Some("http://grid.east.example:8083".to_owned());
    let member = Member { id: 2, grid_url: url, ..Member::default() };
    let found = serde_json::to_value(grid_member(&member, "east", "prod")).unwrap();
    let expected = json!({
        "id": 2, "cluster": "east", "environment": "prod", "url": "http://grid.east.example:8083"
    });
    assert_eq!(found, expected);
    assert_eq!(grid_member(&Member::default(), "east", "").environment, None);
}
