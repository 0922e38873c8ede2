//! Snapshots of rendered objects.

use oprc_unit::{Identity, Platform, Profile, ValidClass, select, validate};
use serde_json::{Value, json};

use super::super::{
    container_resources::{SizedContainer, made_for},
    render,
};
use crate::crd::{GRID_KEY, Recommendation};

/// Everything that is written for a class.
fn objects(profile: Profile, spec: &Value) -> Vec<Value> {
    objects_on(profile, spec, |_| {})
}

/// Like [`objects`], on a platform with other settings.
fn objects_on(profile: Profile, spec: &Value, change: impl FnOnce(&mut Platform)) -> Vec<Value> {
    objects_with(profile, spec, change, |_| Vec::new())
}

/// Like [`objects_on`], with what enforcement applies.
fn objects_with(
    profile: Profile,
    spec: &Value,
    change: impl FnOnce(&mut Platform),
    applied: impl FnOnce(&ValidClass) -> Vec<Recommendation>,
) -> Vec<Value> {
    let mut environment = Platform::of(profile);
    change(&mut environment);
    environment.features.odgm = true;
    environment.knative = true;
    environment.autoscaling = true;
    let identity = Identity {
        name: "shop".to_owned(),
        base: "shop".to_owned(),
        namespace: "ns".to_owned(),
        uid: "uid-of-shop".to_owned(),
        generation: 3,
        deployment_id: "Unit/1".to_owned(),
        environment: Some("prod".to_owned()),
    };
    let spec = serde_json::from_value(spec.clone()).unwrap();
    let class = validate(environment.profile, identity, &spec, &environment).unwrap();
    let selection = select(&class, &environment, None).unwrap();
    let desired = render::render(&class, &selection, &environment, &applied(&class));
    let unmarked = |mut object: Value| {
        let annotations = object["metadata"]["annotations"].as_object_mut().unwrap();
        // A hash of what the snapshot contains anyway.
        assert_eq!(annotations.remove(render::SPEC_HASH).unwrap().as_str().unwrap().len(), 16);
        object
    };
    desired.objects.into_iter().map(|desired| unmarked(desired.object)).collect()
}

fn keep(name: &str, objects: &[Value]) {
    insta::with_settings!({omit_expression => true, prepend_module_to_snapshot => false}, {
        insta::assert_yaml_snapshot!(name, objects);
    });
}

#[test]
fn two_functions_and_a_data_grid_in_dev() {
    keep(
        "two_functions_and_a_data_grid_in_dev",
        &objects(
            Profile::Dev,
            &json!({
                "deployment_unit": {"id": "Unit/1", "package": "store", "class": "Cart"},
                "functions": [
                    {"key": "Add.Item", "image": "registry/add:1", "port": 9000, "bindings": [
                        {"name": "onChange", "trigger_on_state_change": true},
                    ]},
                    {"key": "list", "image": "registry/list:1"},
                ],
                "state": {"state_type": "COLLECTION"},
                "addons": ["odgm"],
            }),
        ),
    );
}

#[test]
fn a_replicated_persistent_data_grid_in_production() {
    keep(
        "a_replicated_persistent_data_grid_in_production",
        &objects(
            Profile::Full,
            &json!({
                "functions": [{
                    "key": "steady", "image": "registry/steady:1",
                    "provision": {"min_scale": 2, "max_scale": 6},
                    "requirements": {"min_throughput_rps": 2000, "max_latency_ms": 80},
                    "odgm": {"collections": ["carts"], "access_mode": "read_only", "caching_strategy": "read_through"},
                }],
                "addons": ["odgm"],
                "odgm_config": {
                    "collections": ["carts", "sessions"],
                    "storage": {"class": "fast", "size": "10Gi"},
                    "env": [{"name": "RUST_BACKTRACE", "value": "1"}],
                },
                "resource_allocation": {"replication_factor": 3},
            }),
        ),
    );
}

/// A class that uses everything that the data grid knows about a class.
fn shop() -> Value {
    json!({
        "deployment_unit": {"id": "shop.Cart..one", "package": "store", "class": "Cart"},
        "functions": [
            {
                "key": "add", "image": "i", "access": "PUBLIC",
                "config": {"timeout_ms": 86_400_000, "retries": 2},
                "constraints": {"max_concurrency": 7},
                "bindings": [
                    {"name": "add", "condition": "args.n > 0"},
                    {"name": "changed", "access": "PRIVATE", "trigger_on_state_change": true},
                ],
            },
            {"key": "total", "image": "i", "odgm": {
                "access_mode": "read_only",
                "event_triggers": [{"trigger_type": "DELETE", "async_execution": true}],
            }},
            {"key": "both", "type": "MACRO", "macro": {"steps": [
                {"method": "add", "as": "added", "args": {"n": "1"}, "arg_refs": {"of": "$args.of"}},
                {"method": "greet", "target": "$.owner", "inputs": ["added.n"]},
            ], "output": "added"}},
        ],
        "state": {"key_specs": [{"name": "n", "type": "INTEGER", "immutable": true}], "access": "PUBLIC"},
        "references": [
            {"name": "owner", "class": "store.User", "unit": "shop.User..one"},
            {"name": "away", "class": "other.Thing", "url": "http://away", "access": "PUBLIC"},
            {"name": "lost", "class": "other.Lost"},
        ],
        "addons": ["odgm"],
        "odgm_config": {"invocation_routes": {
            "far": {"url": "http://far", "stateless": true},
            "add": {"url": "http://instead", "standby": true},
        }},
    })
}

fn config_map(spec: &Value) -> Value {
    let all = objects(Profile::Full, spec);
    let found = all.iter().find(|it| it["kind"] == "ConfigMap").unwrap();
    found["data"].clone()
}

#[test]
fn the_data_grid_knows_its_class() {
    let class: Value =
        serde_json::from_str(config_map(&shop())["class.json"].as_str().unwrap()).unwrap();
    let expected = json!({
        "name": "store.Cart", "stateType": "NORMAL", "dataAccess": "PUBLIC", "maxTriggerDepth": 10,
        "keySpecs": [
            {"name": "n", "type": "INTEGER", "immutable": true},
            {"name": "owner", "type": "JSON", "optional": true},
            {"name": "away", "type": "JSON", "optional": true},
            {"name": "lost", "type": "JSON", "optional": true},
        ],
        "methods": {
            "add": {
                "url": "http://shop--add.ns.svc", "access": "PUBLIC", "timeoutMs": 600_000,
                "maxConcurrency": 7, "retries": 2, "condition": "args.n > 0",
            },
            "changed": {
                "url": "http://shop--add.ns.svc", "access": "PRIVATE", "timeoutMs": 600_000,
                "maxConcurrency": 7, "retries": 2,
            },
            "total": {"url": "http://shop--total.ns.svc", "access": "INTERNAL", "readOnly": true},
            "far": {"url": "http://far", "access": "INTERNAL", "stateless": true},
        },
        "macros": {"both": {
            "access": "INTERNAL",
            "steps": [
                {"method": "add", "target": "$", "name": "added", "args": {"n": "1"}, "argRefs": {"of": "$args.of"}},
                {"method": "greet", "target": "$.owner", "inputs": ["added.n"]},
            ],
            "output": "added",
        }},
        "triggers": [
            {"method": "changed", "collections": ["Cart_data"], "async": false, "timeoutMs": 5000},
            {"method": "total", "type": "DELETE", "collections": [], "async": true, "timeoutMs": 5000},
        ],
        "batch": {"size": 100, "timeoutMs": 1000},
        "references": {
            "owner": {"class": "store.User", "url": "http://shop--user-odgm-svc.ns.svc:8081", "access": "INTERNAL"},
            "away": {"class": "other.Thing", "url": "http://away", "access": "PUBLIC"},
        },
    });
    assert_eq!(class, expected);
    let mut off = shop();
    off["odgm_config"]["event_processing"] = json!({"enabled": false});
    let class: Value =
        serde_json::from_str(config_map(&off)["class.json"].as_str().unwrap()).unwrap();
    assert_eq!(class["triggers"], json!([]));
}

#[test]
fn neither_methods_nor_members_restart_grid_nodes() {
    let template = |spec: &Value| {
        let all = objects(Profile::Full, spec);
        all.iter().find(|it| it["kind"] == "StatefulSet").unwrap()["spec"]["template"].clone()
    };
    let mut replicated = shop();
    replicated["odgm_config"]["replicas"] = json!(3);
    assert_eq!(config_map(&shop()).get("members.json"), None);
    assert_eq!(config_map(&replicated)["members.json"], r#"{"members":3}"#);
    let mut other = replicated.clone();
    other["odgm_config"]["replicas"] = json!(5);
    other["functions"][0]["bindings"][1]["name"] = json!("renamed");
    other["functions"][1]["config"] = json!({"timeout_ms": 5});
    assert_ne!(config_map(&other), config_map(&replicated));
    assert_eq!(template(&other), template(&replicated));
    let divided = |owners: &[i32]| {
        let mut spec = replicated.clone();
        let config = &mut spec["odgm_config"];
        config["member_id"] = json!(1);
        config["members"] =
            json!([{"id": 1, "cluster": "a"}, {"id": 2, "cluster": "b", "url": "http://b"}]);
        config["shard_assignments"] = json!(oprc_unit::from_model::shard_assignments(owners));
        spec
    };
    let before = divided(&[1, 2, 1, 2]);
    assert_eq!(template(&before), template(&replicated));
    assert_eq!(template(&before), template(&divided(&[2, 2, 2, 1])));
    let class: Value =
        serde_json::from_str(config_map(&before)["class.json"].as_str().unwrap()).unwrap();
    let expected = json!({
        "member": 1,
        "members": [{"id": 1, "cluster": "a"}, {"id": 2, "cluster": "b", "url": "http://b"}],
        "partitions": {"Cart_data": [1, 2, 1, 2]},
    });
    assert_eq!(class["membership"], expected);
}

#[test]
fn a_majority_of_grid_nodes_stays_during_disruptions() {
    for (nodes, most) in [(3, 1), (5, 2), (7, 3)] {
        let mut spec = shop();
        spec["odgm_config"]["replicas"] = json!(nodes);
        let all = objects(Profile::Full, &spec);
        let budget = all.iter().find(|it| {
            it["kind"] == "PodDisruptionBudget" && it["metadata"]["name"] == "shop-odgm"
        });
        assert_eq!(budget.unwrap()["spec"]["maxUnavailable"], most);
    }
}

#[test]
fn a_function_with_limits_behind_its_proxy() {
    keep(
        "a_function_with_limits_behind_its_proxy",
        &objects(
            Profile::Full,
            &json!({
                "selected_template": "k8s_deployment",
                "functions": [{
                    "key": "greet", "image": "img:1", "port": 8081,
                    "config": {"timeout_ms": 1500},
                    "requirements": {"max_latency_ms": 200, "min_throughput_rps": 50},
                    "constraints": {"max_concurrency": 5, "hard_latency_ms": 900},
                }],
            }),
        ),
    );
}

#[test]
fn monitors_lead_the_prometheus_operator_to_all_metrics() {
    use oprc_unit::{MonitorKind, Monitors};
    let spec = json!({
        "addons": ["odgm"], "selected_template": "k8s_deployment",
        "functions": [
            {"key": "plain", "image": "i"},
            {"key": "measured", "image": "i", "requirements": {"max_latency_ms": 50}},
        ],
    });
    let rendered = |kind, spec: &Value| {
        let labels = [("release".to_owned(), "prometheus".to_owned())].into();
        let interval = std::time::Duration::from_secs(15);
        let objects = objects_on(Profile::Dev, spec, |platform| {
            platform.monitors = Some(Monitors { kind, labels, interval });
        });
        objects.into_iter().find(|it| it["apiVersion"] == "monitoring.coreos.com/v1")
    };
    keep("monitor_of_services", &[rendered(MonitorKind::Service, &spec).unwrap()]);
    let pods = rendered(MonitorKind::Pod, &spec).unwrap();
    assert_eq!(pods["kind"], "PodMonitor");
    let ports = pods["spec"]["podMetricsEndpoints"].as_array().unwrap().iter();
    let ports: Vec<_> = ports.map(|it| it["port"].as_str().unwrap()).collect();
    assert_eq!(ports, ["proxy-metrics", "app", "http", "grpc"]);
    let mut on_knative = spec.clone();
    on_knative["selected_template"] = json!("knative");
    on_knative["addons"] = json!([]);
    assert_eq!(rendered(MonitorKind::Service, &on_knative), None);
    let mut without = spec;
    without["telemetry"] = json!({"metrics": false});
    let of_proxies = rendered(MonitorKind::Pod, &without).unwrap();
    assert_eq!(of_proxies["spec"]["podMetricsEndpoints"].as_array().unwrap().len(), 1);
}

#[test]
fn the_proxy_runs_as_the_class_says() {
    let proxied = |template: &str, proxy: &Value, requirements: &Value| {
        let spec = json!({
            "selected_template": template, "proxy": proxy,
            "functions": [{"key": "f", "image": "i", "requirements": requirements}],
        });
        let objects = objects(Profile::Dev, &spec);
        objects.iter().any(|it| it.to_string().contains("oprc-proxy"))
    };
    let (none, latency) = (json!({}), json!({"max_latency_ms": 50}));
    for (mode, plain, measured) in
        [(json!(null), false, true), (json!("always"), true, true), (json!("never"), false, false)]
    {
        assert_eq!(proxied("k8s_deployment", &mode, &none), plain, "{mode}");
        assert_eq!(proxied("k8s_deployment", &mode, &latency), measured, "{mode}");
        for template in ["knative", "job"] {
            assert!(!proxied(template, &mode, &none) && !proxied(template, &mode, &latency));
        }
    }
}

#[test]
fn knative() {
    keep(
        "knative",
        &objects(
            Profile::Edge,
            &json!({
                "selected_template": "knative",
                "constraints": {"max_concurrency": 10},
                "functions": [
                    {
                        "key": "open", "image": "registry/open:1", "access": "PUBLIC",
                        "provision": {"min_scale": 1, "max_scale": 8},
                        "health_check": {"path": "/healthz"},
                        "config": {"timeout_ms": 1500},
                    },
                    {"key": "closed", "image": "registry/closed:1"},
                ],
            }),
        ),
    );
}

#[test]
fn a_job() {
    keep(
        "a_job",
        &objects(
            Profile::Full,
            &json!({
                "selected_template": "job",
                "function": {
                    "image": "registry/import:1",
                    "provision": {"command": ["/import"], "args": ["--all"]},
                    "config": {"timeout_ms": 90_000, "env": {"MODE": "fast"}},
                },
            }),
        ),
    );
}

#[test]
fn the_deadline_of_a_job_is_rounded_up_to_seconds() {
    for (timeout_ms, seconds) in [(1, 1), (1000, 1), (1001, 2), (1999, 2), (2000, 2)] {
        let config = json!({"timeout_ms": timeout_ms});
        let spec = json!({
            "selected_template": "job", "function": {"image": "i", "config": config},
        });
        let [job] = objects(Profile::Full, &spec).try_into().unwrap();
        assert_eq!(job["spec"]["activeDeadlineSeconds"], seconds, "{timeout_ms} ms");
    }
}

#[test]
fn every_option_of_a_provision() {
    keep(
        "every_option_of_a_provision",
        &objects(
            Profile::Dev,
            &json!({
                "selected_template": "k8s_deployment",
                "telemetry": {"metrics_path": "/stats", "otlp_endpoint": "http://otel:4317"},
                "functions": [
                    {
                        "key": "all", "image": "registry/all:1",
                        "provision": {
                            "min_scale": 1,
                            "requests": {"cpu": "2", "memory": "1Gi"},
                            "limits": {"memory": "2Gi", "ephemeral_storage": "1Gi"},
                            "env": [
                                {"name": "PLAIN", "value": "1"},
                                {"name": "EMPTY", "value": ""},
                                {"name": "PASSWORD", "secret": {"name": "db", "key": "password"}},
                                {"name": "COLOUR", "config_map": {"name": "theme", "key": "colour", "optional": true}},
                            ],
                            "env_from": [
                                {"secret": "credentials", "prefix": "AWS_"},
                                {"config_map": "settings", "optional": true},
                            ],
                            "image_pull_policy": "Always",
                            "image_pull_secrets": ["registry"],
                            "service_account": "worker",
                            "volume_mounts": [
                                {"mount_path": "/secret", "secret": "db", "read_only": true},
                                {"mount_path": "/config.yaml", "sub_path": "config.yaml", "config_map": "settings"},
                                {"mount_path": "/disk", "claim": "disk"},
                                {"mount_path": "/scratch", "empty_dir": {"size_limit": "64Mi", "in_memory": true}},
                            ],
                            "command": ["/bin/serve"],
                            "args": ["--verbose"],
                            "security": {"level": "baseline"},
                        },
                        "health_check": {
                            "path": "/healthz", "port": 9090, "startup_seconds": 120,
                            "period_seconds": 7, "timeout_seconds": 3, "failure_threshold": 4,
                        },
                        "config": {"timeout_ms": 60_000},
                    },
                    {
                        "key": "grpc", "image": "registry/grpc:1", "port": 50_051,
                        "provision": {"security": {"run_as_user": 1000}},
                        "health_check": {"grpc": true},
                    },
                ],
            }),
        ),
    );
}

#[test]
fn the_partition_is_a_label_of_objects_but_not_of_pods() {
    let spec = json!({
        "deployment_unit": {"id": "u", "partition_info": {"partition_id": 3, "replica_id": 1}},
        "functions": [{"key": "f", "image": "i"}],
        "addons": ["odgm"],
    });
    for object in objects(Profile::Full, &spec) {
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels[render::PARTITION], "3");
        assert_eq!(labels[render::PARTITION_REPLICA], "1");
        let pod = object.pointer("/spec/template/metadata/labels");
        assert!(pod.is_none_or(|labels| labels.get(render::PARTITION).is_none()));
    }
}

#[test]
fn the_number_of_instances_does_not_change_the_pods() {
    let template = |min: i32, max: i32| {
        let spec = json!({
            "selected_template": "k8s_deployment",
            "functions": [{"key": "f", "image": "i", "provision": {"min_scale": min, "max_scale": max}}],
        });
        let all = objects(Profile::Full, &spec);
        all.iter().find(|it| it["kind"] == "Deployment").unwrap()["spec"]["template"].clone()
    };
    let one = template(1, 1);
    assert!([(1, 3), (2, 2), (5, 9)].into_iter().all(|(min, max)| template(min, max) == one));
}

#[test]
fn functions_of_several_instances_have_a_disruption_budget_and_all_are_spread() {
    let kinds = |provision: Value| {
        let spec = json!({
            "selected_template": "k8s_deployment",
            "functions": [{"key": "f", "image": "i", "provision": provision}],
        });
        let all = objects(Profile::Full, &spec);
        let spread = all
            .iter()
            .any(|it| it.pointer("/spec/template/spec/topologySpreadConstraints").is_some());
        (all.iter().any(|it| it["kind"] == "PodDisruptionBudget"), spread)
    };
    assert_eq!(kinds(json!({"min_scale": 1, "max_scale": 3})), (true, true));
    assert_eq!(kinds(json!({"min_scale": 2, "max_scale": 2})), (true, true));
    assert_eq!(kinds(json!({"min_scale": 1, "max_scale": 1})), (false, true));
}

const MIB: f64 = 1024.0 * 1024.0;

fn applied(class: &ValidClass, dimension: &str, target: f64, limit: f64) -> Recommendation {
    Recommendation {
        component: "f".to_owned(),
        dimension: dimension.to_owned(),
        target,
        limit: Some(limit),
        made_for: Some(made_for((&class.functions[0]).into())),
        ..Recommendation::default()
    }
}

/// The resources of the container of the only function.
fn container_resources(
    template: &str,
    provision: &Value,
    max_memory: u64,
    applied: impl FnOnce(&ValidClass) -> Vec<Recommendation>,
) -> Value {
    let spec = json!({
        "selected_template": template,
        "functions": [{"key": "f", "image": "i", "provision": provision}],
    });
    let change = |platform: &mut Platform| platform.scaling.max_memory_bytes = max_memory;
    let all = objects_with(Profile::Full, &spec, change, applied);
    let found = all.iter().find_map(|it| it.pointer("/spec/template/spec/containers/0/resources"));
    found.unwrap().clone()
}

#[test]
fn resources_that_enforcement_applies() {
    let both = |class: &ValidClass| {
        vec![applied(class, "memory", 391.0 * MIB, 782.0 * MIB), applied(class, "cpu", 0.352, 0.65)]
    };
    let of = |template: &str| container_resources(template, &json!({}), 4 << 30, both);
    keep("resources_that_enforcement_applies", &[of("k8s_deployment")]);
    assert_eq!(of("knative"), of("k8s_deployment"));
    let job = container_resources("job", &json!({}), 4 << 30, |_| Vec::new());
    assert_eq!(of("job"), job, "a Job runs once");
}

#[test]
fn applied_resources_keep_to_what_the_user_wrote_and_the_settings_allow() {
    let memory = |provision: &Value, max: u64, target: f64, limit: f64| {
        let found = container_resources("k8s_deployment", provision, max, |class| {
            vec![applied(class, "memory", target * MIB, limit * MIB)]
        });
        let text = |part: &str| found[part]["memory"].as_str().unwrap().to_owned();
        (text("requests"), text("limits"))
    };
    let pair = |request: &str, limit: &str| (request.to_owned(), limit.to_owned());
    let (none, gib) = (json!({}), 1 << 30);
    assert_eq!(memory(&none, 4 * gib, 100.0, 200.0), pair("100Mi", "200Mi"));
    assert_eq!(memory(&none, gib, 5000.0, 9000.0), pair("1024Mi", "1024Mi"));
    let written = json!({"requests": {"memory": "300Mi"}, "limits": {"memory": "700Mi"}});
    assert_eq!(memory(&written, gib, 100.0, 200.0), pair("300Mi", "700Mi"));
    assert_eq!(memory(&written, gib, 600.0, 1000.0), pair("600Mi", "1000Mi"));
    // More than enforcement may set.
    let large = json!({"requests": {"memory": "3Gi"}, "limits": {"memory": "6Gi"}});
    assert_eq!(memory(&large, gib, 100.0, 200.0), pair("3072Mi", "6144Mi"));
}

#[test]
fn resources_that_were_applied_to_another_version_are_ignored() {
    let specified = container_resources("k8s_deployment", &json!({}), 4 << 30, |_| Vec::new());
    for other in [None, Some("other".to_owned())] {
        let found = container_resources("k8s_deployment", &json!({}), 4 << 30, |class| {
            let entry = applied(class, "memory", 391.0 * MIB, 782.0 * MIB);
            vec![Recommendation { made_for: other, ..entry }]
        });
        assert_eq!(found, specified);
    }
    let of = |function: &Value| {
        let mut made = None;
        let spec = json!({"selected_template": "k8s_deployment", "functions": [function]});
        objects_with(
            Profile::Full,
            &spec,
            |_| {},
            |class| {
                made = Some(made_for((&class.functions[0]).into()));
                Vec::new()
            },
        );
        made.unwrap()
    };
    let first = of(&json!({"key": "f", "image": "i:1"}));
    let scaled = json!({"key": "f", "image": "i:1", "provision": {"min_scale": 3}});
    assert_eq!(of(&scaled), first, "instances don't matter");
    assert_ne!(of(&json!({"key": "f", "image": "i:2"})), first);
    let sized = json!({"key": "f", "image": "i:1", "provision": {"limits": {"memory": "1Gi"}}});
    assert_ne!(of(&sized), first);
}

#[test]
fn a_mounted_claim_is_writable_by_the_container() {
    let group = |template: &str, mount: &Value, security: &Value| {
        let spec = json!({
            "selected_template": template,
            "functions": [{"key": "f", "image": "i", "provision": {
                "volume_mounts": [mount], "security": security,
            }}],
        });
        let all = objects(Profile::Dev, &spec);
        let pod = all.iter().find_map(|it| it.pointer("/spec/template/spec")).unwrap().clone();
        pod["securityContext"]["fsGroup"].clone()
    };
    let claim = json!({"mount_path": "/d", "claim": "c"});
    let folder = json!({"mount_path": "/d", "empty_dir": {}});
    for template in ["k8s_deployment", "job"] {
        assert_eq!(group(template, &claim, &json!({})), 65_532);
        assert_eq!(group(template, &claim, &json!({"run_as_user": 1000})), 1000);
        assert_eq!(group(template, &claim, &json!({"level": "baseline"})), Value::Null);
        assert_eq!(group(template, &folder, &json!({})), Value::Null);
    }
    assert_eq!(group("knative", &folder, &json!({})), Value::Null);
}

#[test]
fn resources_of_a_replicated_data_grid_that_enforcement_applies() {
    let memory = |nodes: i32| {
        let spec = json!({
            "functions": [{"key": "f", "image": "i"}],
            "addons": ["odgm"],
            "odgm_config": {"replicas": nodes, "image": "g", "requests": {"memory": "256Mi"}},
        });
        let applied = |class: &ValidClass| {
            let container = SizedContainer::of_grid(class.odgm.as_ref().unwrap(), "g");
            vec![Recommendation {
                component: GRID_KEY.to_owned(),
                dimension: "memory".to_owned(),
                target: 391.0 * MIB,
                made_for: Some(made_for(container)),
                ..Recommendation::default()
            }]
        };
        let all = objects_with(Profile::Full, &spec, |_| {}, applied);
        let is_grid =
            |it: &&Value| it["metadata"]["name"] == "shop-odgm" && it["kind"] == "StatefulSet";
        let grid = all.iter().find(is_grid).unwrap();
        grid["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["memory"].clone()
    };
    assert_eq!(memory(3), "391Mi");
    assert_eq!(memory(1), "256Mi", "its state isn't available while it restarts");
}
