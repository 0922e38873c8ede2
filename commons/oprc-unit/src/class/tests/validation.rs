//! Violations and the fields that they name.

use oprc_models::rules::RESERVED_ENV;
use serde_json::{Value, json};

use super::{check, plain, with};
use crate::{PassiveReason, spec::Access};

fn assert_rejected(spec: &Value, field: &str, word: &str) {
    let rejection = check(spec).expect_err(field);
    assert_eq!(
        (rejection.reason.as_str(), rejection.precondition),
        ("InvalidSpec", false),
        "{field}"
    );
    let found = rejection.violations.iter().find(|it| it.field == field);
    let found = found.unwrap_or_else(|| panic!("{field} isn't among {:?}", rejection.violations));
    assert!(found.message.contains(word), "{field}: {}", found.message);
    assert!(rejection.message.contains(field), "{}", rejection.message);
    assert_eq!(rejection.violations.len(), 1, "nothing else is wrong: {:?}", rejection.violations);
}

#[test]
fn accepts_a_minimal_class() {
    let class = check(&plain()).unwrap();
    assert_eq!(class.functions.len(), 1);
    assert_eq!(class.functions[0].port, 8080);
}

#[test]
fn violations_of_a_class_name_the_field() {
    let cases = [
        ("/addons", json!(["odgn"]), "addons", "odgm"),
        (
            "/nfr_requirements/min_throughput_rps",
            json!(-1),
            "nfr_requirements.min_throughput_rps",
            "-1",
        ),
        (
            "/nfr_requirements/max_latency_ms",
            json!(0),
            "nfr_requirements.max_latency_ms",
            "between 1",
        ),
        (
            "/nfr_requirements/availability",
            json!(99.9),
            "nfr_requirements.availability",
            "availability_pct",
        ),
        (
            "/nfr_requirements/availability_pct",
            json!(101.0),
            "nfr_requirements.availability_pct",
            "100",
        ),
        (
            "/nfr_requirements",
            json!({"availability": 0.9, "availability_pct": 90.0}),
            "nfr_requirements.availability_pct",
            "combined",
        ),
        ("/constraints/hard_latency_ms", json!(0), "constraints.hard_latency_ms", "between 1"),
        ("/constraints/max_concurrency", json!(1001), "constraints.max_concurrency", "1000"),
        (
            "/rollout/progress_deadline_seconds",
            json!(0),
            "rollout.progress_deadline_seconds",
            "86400",
        ),
        ("/rollout/drain_seconds", json!(-1), "rollout.drain_seconds", "3600"),
        (
            "/resource_allocation/replication_factor",
            json!(100),
            "resource_allocation.replication_factor",
            "99",
        ),
        ("/disabled_functions", json!(["nobody"]), "disabled_functions", "nobody"),
        ("/standby_functions", json!(["nobody"]), "standby_functions", "nobody"),
    ];
    for (pointer, value, field, word) in cases {
        assert_rejected(&with(&plain(), pointer, value), field, word);
    }
}

#[test]
fn violations_of_a_function_name_the_field() {
    let cases = [
        ("image", json!(""), "image", "1 to 1024"),
        ("image", json!("a b"), "image", "whitespace"),
        ("image", Value::Null, "image", "required"),
        ("key", json!(""), "key", "1 to 253"),
        ("port", json!(0), "port", "65535"),
        ("port", json!(65536), "port", "65535"),
        ("provision", json!({"min_scale": -1}), "provision.min_scale", "between 0"),
        ("provision", json!({"max_scale": 0}), "provision.max_scale", "between 1"),
        ("provision", json!({"min_scale": 3, "max_scale": 2}), "provision.min_scale", "max_scale"),
        ("provision", json!({"requests": {"cpu": "lots"}}), "provision.requests.cpu", "250m"),
        ("provision", json!({"limits": {"memory": "-1Gi"}}), "provision.limits.memory", "negative"),
        (
            "provision",
            json!({"requests": {"memory": "2Gi"}, "limits": {"memory": "1024Mi"}}),
            "provision.requests.memory",
            "limit",
        ),
        (
            "provision",
            json!({"requests": {"ephemeral_storage": "2G"}, "limits": {"ephemeral_storage": "1G"}}),
            "provision.requests.ephemeral_storage",
            "limit",
        ),
        (
            "provision",
            json!({"volume_mounts": [{"mount_path": "data", "secret": "s"}]}),
            "provision.volume_mounts[0].mount_path",
            "/",
        ),
        (
            "provision",
            json!({"volume_mounts": [{"mount_path": "/a:b", "secret": "s"}]}),
            "provision.volume_mounts[0].mount_path",
            "colon",
        ),
        (
            "provision",
            json!({"volume_mounts": [{"mount_path": "/data"}]}),
            "provision.volume_mounts[0]",
            "exactly one",
        ),
        (
            "provision",
            json!({"volume_mounts": [{"mount_path": "/data", "secret": "s", "claim": "c"}]}),
            "provision.volume_mounts[0]",
            "exactly one",
        ),
        (
            "provision",
            json!({"volume_mounts": [{"mount_path": "/d", "empty_dir": {"size_limit": "big"}}]}),
            "provision.volume_mounts[0].empty_dir.size_limit",
            "quantity",
        ),
        (
            "provision",
            json!({"volume_mounts": [{"mount_path": "/d", "empty_dir": {"size_limit": "-1"}}]}),
            "provision.volume_mounts[0].empty_dir.size_limit",
            "negative",
        ),
        ("provision", json!({"env_from": [{}]}), "provision.env_from[0]", "exactly one"),
        (
            "provision",
            json!({"env_from": [{"secret": "s", "config_map": "c"}]}),
            "provision.env_from[0]",
            "exactly one",
        ),
        ("provision", json!({"env": [{"name": "1A"}]}), "provision.env[0].name", "1A"),
        (
            "provision",
            json!({"env": [{"name": "A"}, {"name": "A"}]}),
            "provision.env[1].name",
            "twice",
        ),
        (
            "provision",
            json!({"env": [{"name": "A", "value": "1", "secret": {"name": "s", "key": "k"}}]}),
            "provision.env[0]",
            "one of",
        ),
        ("config", json!({"timeout_ms": 0}), "config.timeout_ms", "between 1"),
        ("config", json!({"env": {"A=B": "1"}}), "config.env", "A=B"),
        ("health_check", json!({"port": 0}), "health_check.port", "65535"),
        ("health_check", json!({"grpc": true, "path": "/x"}), "health_check.path", "grpc"),
        ("requirements", json!({"max_latency_ms": 0}), "requirements.max_latency_ms", "between 1"),
        ("requirements", json!({"availability": 2.0}), "requirements.availability", "fraction"),
        ("constraints", json!({"max_concurrency": 0}), "constraints.max_concurrency", "between 1"),
    ];
    let two = json!({"functions": [{"key": "fine", "image": "img"}, {"key": "f", "image": "img"}]});
    let one = json!({"function": {"image": "img"}});
    for (name, value, field, word) in cases {
        let spec = with(&two, &format!("/functions/1/{name}"), value.clone());
        assert_rejected(&spec, &format!("functions[1].{field}"), word);
        if name != "key" {
            let spec = with(&one, &format!("/function/{name}"), value);
            assert_rejected(&spec, &format!("function.{field}"), word);
        }
    }
}

#[test]
fn rejects_variables_that_the_platform_sets() {
    for name in RESERVED_ENV {
        let env =
            with(&plain(), "/functions/0/provision/env", json!([{"name": name, "value": "x"}]));
        assert_rejected(&env, "functions[0].provision.env[0].name", "platform");
        let config = with(&plain(), "/functions/0/config/env", json!({name: "x"}));
        assert_rejected(&config, "functions[0].config.env", "platform");
    }
}

#[test]
fn function_and_functions_are_mutually_exclusive() {
    let both = with(&plain(), "/function", json!({"image": "img"}));
    assert_rejected(&both, "function", "mutually exclusive");
}

#[test]
fn function_keys_are_unique_regardless_of_case() {
    let twice = json!({"functions": [{"key": "f", "image": "a"}, {"key": "f", "image": "b"}]});
    assert_rejected(&twice, "functions[1].key", "twice");
    let case = json!({"functions": [{"key": "F", "image": "a"}, {"key": "f", "image": "b"}]});
    assert_rejected(&case, "functions[1].key", "\"f\" differs from \"F\" only in case");
}

#[test]
fn template_hint_must_equal_selected_template() {
    let spec = with(&plain(), "/selected_template", json!("dev"));
    assert_rejected(&with(&spec, "/template_hint", json!("edge")), "template_hint", "differs");
    check(&with(&spec, "/template_hint", json!("dev"))).unwrap();
}

#[test]
fn reports_all_violations_at_once() {
    let spec = json!({
        "addons": ["nothing"],
        "functions": [{"key": "f", "port": 0}, {"key": "g", "image": "img", "port": 0}],
    });
    let rejection = check(&spec).unwrap_err();
    let fields: Vec<_> = rejection.violations.iter().map(|it| it.field.as_str()).collect();
    assert_eq!(fields, ["addons", "functions[0].image", "functions[0].port", "functions[1].port"]);
}

/// The API server would reject these values, so that the class could not be stored.
#[test]
fn limits_of_the_schema_apply_to_every_field() {
    let binding = json!([{"name": ""}]);
    let long = "x".repeat(64);
    let routes = json!({"a b": {"url": "ftp://x"}});
    let partition = json!({"partition_id": -1, "replica_id": 0});
    let variables: Value = (0..257).map(|at| (format!("V{at}"), json!("x"))).collect();
    let functions: Vec<_> =
        (0..65).map(|at| json!({"key": format!("f{at}"), "image": "img"})).collect();
    for (pointer, value, field, word) in [
        ("/target_environment", json!(long), "target_environment", "1 to 63 characters"),
        ("/selected_template", json!(""), "selected_template", "1 to 63 characters"),
        ("/functions", json!(functions), "functions", "65 entries; at most 64"),
        ("/functions/0/key", json!("-f"), "functions[0].key", "doesn't match ^[A-Za-z0-9]"),
        ("/functions/0/bindings", binding, "functions[0].bindings[0].name", "1 to 253"),
        ("/functions/0/config/env", variables, "functions[0].config.env", "at most 256"),
        (
            "/functions/0/provision/security/run_as_user",
            json!(1_i64 << 31),
            "functions[0].provision.security.run_as_user",
            "2147483648 isn't between 0 and 2147483647",
        ),
        (
            "/functions/0/provision/command",
            json!(["run", "x".repeat(4097)]),
            "functions[0].provision.command[1]",
            "at most 4096 characters",
        ),
        (
            "/functions/0/health_check/failure_threshold",
            json!(101),
            "functions[0].health_check.failure_threshold",
            "101 isn't between 1 and 100",
        ),
        ("/telemetry/otlp_endpoint", json!("x:1"), "telemetry.otlp_endpoint", "^https?://"),
        (
            "/deployment_unit",
            json!({"id": "unit-1", "partition_info": partition}),
            "deployment_unit.partition_info.partition_id",
            "-1 is less than 0",
        ),
        (
            "/odgm_config/invocation_routes",
            routes,
            "odgm_config.invocation_routes[\"a b\"].url",
            "doesn't match",
        ),
    ] {
        assert_rejected(&with(&plain(), pointer, value), field, word);
    }
    let disabled = with(&plain(), "/functions/0/port", json!(0));
    let disabled = with(&disabled, "/disabled_functions", json!(["f"]));
    assert_rejected(&disabled, "functions[0].port", "between 1 and 65535");
}

#[test]
fn lengths_count_characters() {
    check(&with(&plain(), "/functions/0/image", json!("é".repeat(1024)))).unwrap();
    let long = with(&plain(), "/functions/0/image", json!("é".repeat(1025)));
    assert_rejected(&long, "functions[0].image", "1 to 1024");
}

#[test]
fn functions_without_a_container_are_passive() {
    let spec = json!({
        "functions": [
            {"key": "macro", "type": "MACRO"},
            {"key": "logical", "type": "LOGICAL"},
            {"key": "builtin", "type": "BUILTIN", "image": "img"},
            {"key": "off", "image": "img"},
        ],
        "disabled_functions": ["off"],
    });
    let class = check(&spec).unwrap();
    let passive: Vec<_> = class.passive.iter().map(|it| (it.key.as_str(), it.reason)).collect();
    assert_eq!(
        passive,
        [
            ("macro", PassiveReason::NoContainer),
            ("logical", PassiveReason::NoContainer),
            ("off", PassiveReason::Disabled),
        ]
    );
    assert_eq!(class.functions[0].key, "builtin");
    assert!(!class.functions[0].task);
    let custom = json!({"functions": [{"key": "f", "type": "CUSTOM"}]});
    assert_rejected(&custom, "functions[0].image", "required");
}

#[test]
fn requirements_of_a_function_override_and_constraints_only_tighten() {
    let spec = json!({
        "nfr_requirements": {"min_throughput_rps": 10, "max_latency_ms": 100},
        "constraints": {"hard_latency_ms": 100, "max_concurrency": 5},
        "functions": [{
            "key": "f", "image": "img",
            "requirements": {"max_latency_ms": 500},
            "constraints": {"hard_latency_ms": 500, "max_concurrency": 2},
        }],
    });
    let function = check(&spec).unwrap().functions.remove(0);
    assert_eq!((function.throughput, function.latency), (Some(10), Some(500)));
    assert_eq!((function.hard_latency, function.max_concurrency), (Some(100), Some(2)));
}

#[test]
fn variables_of_provision_override_those_of_config() {
    let spec = with(&plain(), "/functions/0/provision/env", json!([{"name": "A", "value": "1"}]));
    let spec = with(&spec, "/functions/0/config/env", json!({"A": "2", "B": "3"}));
    let function = check(&spec).unwrap().functions.remove(0);
    let all: Vec<_> =
        function.env.iter().map(|it| (it.name.as_str(), it.value.as_deref().unwrap())).collect();
    assert_eq!(all, [("A", "1"), ("B", "3")]);
}

#[test]
fn the_single_function_has_the_name_of_the_class() {
    let class =
        check(&json!({"function": {"image": "img"}, "standby_functions": ["shop"]})).unwrap();
    assert_eq!((class.functions[0].key.as_str(), &class.functions[0].name_key), ("shop", &None));
    assert!(class.functions[0].standby);
}

#[test]
fn a_function_has_the_widest_access_of_its_bindings() {
    use crate::spec::Access;
    let access = |function: Value| {
        let mut function = function;
        function["key"] = json!("f");
        function["image"] = json!("img");
        check(&json!({"functions": [function]})).unwrap().functions[0].access
    };
    assert_eq!(access(json!({})), Access::Internal);
    assert_eq!(access(json!({"access": "PUBLIC"})), Access::Public);
    let bindings = json!([{"name": "a", "access": "PRIVATE"}, {"name": "b", "access": "PUBLIC"}]);
    assert_eq!(access(json!({"bindings": bindings, "access": "PRIVATE"})), Access::Public);
}

/// Server-side apply fails on lists with duplicate keys.
#[test]
fn rejects_duplicates_in_lists() {
    let field = "/functions/0/provision";
    let mount = json!({"mount_path": "/a", "empty_dir": {}});
    assert_rejected(
        &with(&plain(), field, json!({"volume_mounts": [mount, mount]})),
        "functions[0].provision.volume_mounts[1].mount_path",
        "twice",
    );
    assert_rejected(
        &with(&plain(), field, json!({"image_pull_secrets": ["a", "b", "a"]})),
        "functions[0].provision.image_pull_secrets[2]",
        "twice",
    );
    for (field, one) in
        [("addons", "odgm"), ("disabled_functions", "f"), ("standby_functions", "f")]
    {
        let spec = with(&plain(), &format!("/{field}"), json!([one, one]));
        assert_rejected(&spec, &format!("{field}[1]"), "twice");
    }
}

/// A binding without `access` has the access of its function.
#[test]
fn bindings_without_access_inherit_it() {
    let by = |function: Value, bindings: Value| {
        let spec = with(&plain(), "/functions/0/access", function);
        let spec = with(&spec, "/functions/0/bindings", bindings);
        check(&spec).unwrap().functions[0].access
    };
    let open = json!({"name": "a"});
    let private = json!({"name": "b", "access": "PRIVATE"});
    assert_eq!(by(json!("PUBLIC"), json!([open, private])), Access::Public);
    assert_eq!(by(json!("PUBLIC"), json!([private])), Access::Private);
    assert_eq!(by(json!(null), json!([open])), Access::Internal);
    assert_eq!(by(json!(null), json!([open, private])), Access::Internal);
    assert_eq!(by(json!("PUBLIC"), json!([])), Access::Public);
}

/// Messages quote a bounded part of the input.
#[test]
fn messages_of_rejections_are_truncated() {
    let spec = with(&plain(), "/functions/0/key", json!("k".repeat(1_000_000)));
    let spec = with(&spec, "/disabled_functions", json!(["x".repeat(1_000_000)]));
    let rejection = check(&spec).unwrap_err();
    assert!(rejection.message.len() < 20_000, "{}", rejection.message.len());
}

#[test]
fn resources_of_the_data_grid_are_validated() {
    for (config, field, word) in [
        (json!({"storage": {"size": "-1Gi"}}), "storage.size", "negative"),
        (json!({"storage": {"size": "0"}}), "storage.size", "greater than 0"),
        (json!({"storage": {"size": "big"}}), "storage.size", "quantity"),
        (json!({"requests": {"cpu": "-1"}}), "requests.cpu", "negative"),
        (
            json!({"requests": {"memory": "2Gi"}, "limits": {"memory": "1024Mi"}}),
            "requests.memory",
            "limit",
        ),
    ] {
        let spec = with(&with(&plain(), "/addons", json!(["odgm"])), "/odgm_config", config);
        assert_rejected(&spec, &format!("odgm_config.{field}"), word);
    }
}

#[test]
fn the_proxy_needs_its_ports_and_enforces_the_concurrency_limit() {
    let limited = with(&plain(), "/constraints", json!({"max_concurrency": 5}));
    assert!(check(&limited).unwrap().functions[0].proxy);
    assert_rejected(&with(&limited, "/proxy", json!("never")), "proxy", "max_concurrency");
    for port in [18080, 18081] {
        let at_its_port = with(&limited, "/functions/0/port", json!(port));
        assert_rejected(&at_its_port, "functions[0].port", "proxy");
        assert!(check(&with(&plain(), "/functions/0/port", json!(port))).is_ok(), "{port}");
        let probed = with(&limited, "/functions/0/health_check", json!({"port": port}));
        assert_rejected(&probed, "functions[0].health_check.port", "proxy");
    }
    let breaker = with(&limited, "/functions/0/constraints", json!({"circuit_breaker": true}));
    assert_rejected(&breaker, "functions[0].constraints.circuit_breaker", "hard_latency_ms");
    let complete = with(&breaker, "/constraints/hard_latency_ms", json!(500));
    assert!(check(&complete).unwrap().functions[0].circuit_breaker);
}

#[test]
fn functions_with_requirements_or_constraints_are_measured() {
    for (field, value) in [
        ("/nfr_requirements/min_throughput_rps", json!(5)),
        ("/nfr_requirements/availability", json!(0.99)),
        ("/functions/0/requirements", json!({"max_latency_ms": 5})),
        ("/functions/0/constraints", json!({"hard_latency_ms": 500})),
    ] {
        assert!(check(&with(&plain(), field, value)).unwrap().functions[0].proxy, "{field}");
    }
    let consistent = with(&plain(), "/nfr_requirements/consistency", json!("strong"));
    for spec in [plain(), consistent] {
        assert!(!check(&spec).unwrap().functions[0].proxy, "{spec}");
        let always = with(&spec, "/proxy", json!("always"));
        assert!(check(&always).unwrap().functions[0].proxy, "{spec}");
    }
}
