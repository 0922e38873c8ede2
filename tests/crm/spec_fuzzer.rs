//! A deterministic generator of malformed specifications.

use oprc_tests::HELLO;
use serde_json::{Map, Value, json};

/// A deterministic random generator (SplitMix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn of_round(round: usize) -> Self {
        let mut dice = Self(0x0a11_5eed ^ (u64::try_from(round).unwrap() << 20));
        dice.roll();
        dice
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.roll() % u64::try_from(end).unwrap()).unwrap()
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// A specification as text, because not every one is a valid JSON value.
pub(crate) fn specification(dice: &mut Dice) -> String {
    let bases = valid();
    let mut spec = dice.pick(&bases).clone();
    for _ in 0..=dice.below(3) {
        mutate(&mut spec, dice);
    }
    let text = spec.to_string();
    match dice.below(16) {
        0 => twice(&text, dice),
        1 => other_numbers(&text, dice),
        _ => text,
    }
}

/// A valid name of a ClassRuntime.
pub(crate) fn name(round: usize, dice: &mut Dice) -> String {
    match dice.below(8) {
        0 => format!("m.{round}.x"),
        1 => format!("m{round}{}", "-long".repeat(40)),
        2 => format!("m{round}-odgm"),
        3 => format!("m--{round}"),
        _ => format!("m{round}"),
    }
}

/// A deployment id, mostly a valid one.
pub(crate) fn id(round: usize, dice: &mut Dice) -> String {
    match dice.below(12) {
        0 => format!("Größe/{round} 🙂"),
        1 => format!("{}{round}", "x".repeat(300)),
        2 => format!("\u{7}{round}"),
        3 => String::new(),
        4 => format!("--{round}--"),
        _ => format!("g{round}"),
    }
}

fn valid() -> [Value; 4] {
    let function = json!({"image": HELLO, "port": 8080});
    let large = json!({
        "deployment_unit": {"package": "shop", "package_version": "1.4.0", "class": "Order"},
        "target_environment": "prod",
        "nfr_requirements": {"min_throughput_rps": 800, "availability": 0.999, "consistency": "strong"},
        "constraints": {"hard_latency_ms": 5000, "max_concurrency": 10},
        "functions": [
            {
                "key": "place", "type": "TASK", "image": HELLO, "port": 9000, "access": "PUBLIC",
                "requirements": {"max_latency_ms": 80},
                "health_check": {"path": "/healthz", "period_seconds": 1, "failure_threshold": 3},
                "config": {"timeout_ms": 10000, "env": {"CURRENCY": "EUR"}},
                "provision": {
                    "min_scale": 1, "max_scale": 2,
                    "requests": {"cpu": "10m", "memory": "16Mi", "ephemeral_storage": "1Mi"},
                    "limits": {"cpu": "1", "memory": "1Gi", "ephemeral_storage": "1Gi"},
                    "env": [{"name": "A", "value": "b"}, {"name": "S", "secret": {"name": "s", "key": "k", "optional": true}}],
                    "env_from": [{"config_map": "c", "optional": true}],
                    "image_pull_policy": "Never", "image_pull_secrets": ["p"],
                    "volume_mounts": [{"mount_path": "/tmp", "empty_dir": {"size_limit": "1Mi"}}],
                    "command": ["/hello-fn"], "args": [], "security": {"level": "baseline", "run_as_user": 7},
                },
                "bindings": [{"name": "place", "access": "INTERNAL", "trigger_on_state_change": true}],
            },
            {"key": "report", "type": "LOGICAL"},
        ],
        "disabled_functions": ["report"], "standby_functions": [],
        "telemetry": {"metrics": true, "metrics_path": "/metrics", "otlp_endpoint": "http://otel:4317"},
        "rollout": {"progress_deadline_seconds": 300, "rollback": true, "drain_seconds": 1},
        "nfr": {"enforcement": {"mode": "observe", "dimensions": ["cpu"]}},
    });
    let grid = json!({
        "functions": [{"key": "greet", "image": HELLO, "odgm": {"event_triggers": [
            {"method": "greet", "trigger_type": "DELETE", "async_execution": true},
        ]}}],
        "addons": ["odgm"],
        "state": {"state_type": "COLLECTION", "persistence": "ephemeral", "access_patterns": ["read_only"]},
        "resource_allocation": {"replication_factor": 1},
        "data_retention": {"on_delete": "delete", "allow_data_loss": true},
        "odgm_config": {
            "collections": [
                {"name": "users"},
                {"name": "orders", "partition_count": 2, "replica_count": 1, "shard_type": "basic",
                 "shard_assignments": [{"primary": 0, "owners": [0], "shard_ids": [0, 1]}]},
            ],
            "replicas": 1, "partition_count": 3, "cluster_id": "c", "node_id_prefix": "n-",
            "event_processing": {"enabled": true, "max_trigger_depth": 3, "trigger_timeout_ms": 100,
                "event_triggers": [{"function_key": "greet", "collection_filters": ["orders"], "trigger_type": "UPDATE"}],
                "batch_processing": {"enabled": true, "batch_size": 2, "batch_timeout_ms": 3}},
            "invocation_routes": {"other": {"url": "http://other", "stateless": true}},
            "storage": {"class": "standard", "size": "1Gi"},
            "requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "1", "memory": "64Mi"},
            "env": [{"name": "X", "value": "y"}],
        },
    });
    // Short forms that Deploy doesn't have.
    let short = json!({
        "function": function, "addons": ["odgm"], "odgm_config": {"collections": ["users"]},
    });
    [short, json!({"functions": [{"key": "a", "image": HELLO}]}), large, grid]
}

/// Quantities, mostly invalid.
const AMOUNTS: [&str; 22] = [
    "",
    "0",
    "-1",
    "-0",
    "1e3",
    "1e400",
    "1E",
    "100E",
    "9e27",
    "9223372036854775807Ki",
    "1n",
    "0.5n",
    "1.000000000000000000000000001",
    "Ki",
    "m",
    "10 apples",
    "0x10",
    "NaN",
    "inf",
    "١٢",
    "+5",
    "1Mi1",
];
/// Quantities of very different sizes.
const EXTREMES: [&str; 4] = ["1n", "100E", "9e27", "8Ei"];
const WORDS: [&str; 20] = [
    " ",
    "\u{0}",
    "\n",
    "🙂",
    "ünïcödé",
    "..",
    "/",
    "-",
    "a,b",
    "\"",
    "\\",
    "${HOME}",
    "$(PORT)",
    "PORT",
    "job",
    "knative",
    "unified",
    "full",
    "UNKNOWN",
    "http://[::1",
];

/// A value that few fields accept.
fn unusual_value(dice: &mut Dice) -> Value {
    match dice.below(18) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(0),
        4 => json!(i64::MAX),
        5 => json!(u64::MAX),
        6 => json!(2_147_483_648_i64),
        7 => json!(0.5),
        8 => json!(1e308),
        9 => json!([]),
        10 => json!({}),
        11 => json!([null, [], {}, "", 0]),
        12 => json!("a".repeat(10 + dice.below(60_000))),
        13 => json!("é".repeat(dice.below(600))),
        14 => (0..dice.below(40)).fold(json!(1), |inner, _| json!([inner])),
        15 => (0..dice.below(40)).fold(json!("x"), |inner, _| json!({"name": inner})),
        16 => json!(*dice.pick(&AMOUNTS)),
        _ => json!(*dice.pick(&WORDS)),
    }
}

/// JSON pointers to all parts of a value.
fn pointers(value: &Value, here: &str, found: &mut Vec<String>) {
    let mut go_on = |key: &str, inner: &Value| {
        let at = format!("{here}/{}", key.replace('~', "~0").replace('/', "~1"));
        pointers(inner, &at, found);
        found.push(at);
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, inner)| go_on(key, inner)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, inner)| go_on(&at.to_string(), inner));
        }
        _ => {}
    }
}

/// Makes one random change, mostly an invalid one.
fn mutate(spec: &mut Value, dice: &mut Dice) {
    let mut all = Vec::new();
    pointers(spec, "", &mut all);
    if all.is_empty() {
        *spec = unusual_value(dice);
        return;
    }
    let at = dice.pick(&all).clone();
    let (parent, last) = at.rsplit_once('/').unwrap();
    match dice.below(12) {
        0 => match spec.pointer_mut(parent) {
            Some(Value::Object(fields)) => drop(fields.remove(last)),
            Some(Value::Array(items)) => drop(items.pop()),
            _ => {}
        },
        1 => match spec.pointer_mut(parent) {
            Some(Value::Array(items)) => items.extend(items.clone()),
            Some(Value::Object(fields)) => drop(fields.insert("no_such_field".into(), json!(1))),
            _ => {}
        },
        2 => {
            let other: &String = dice.pick(&all);
            let other = spec.pointer(other).cloned().unwrap();
            *spec.pointer_mut(&at).unwrap() = other;
        }
        3 => {
            let whole = spec.clone();
            *spec.pointer_mut(&at).unwrap() = whole;
        }
        4 => {
            if let Some(fields) = spec.as_object_mut() {
                fields.insert("function".into(), json!({"image": HELLO}));
            }
        }
        5 | 6 => amounts(spec, dice),
        7 => {
            if let Some(fields) = spec.as_object_mut() {
                let word = dice.pick(&["selected_template", "template_hint", "target_environment"]);
                fields.insert((*word).into(), unusual_value(dice));
            }
        }
        _ => *spec.pointer_mut(&at).unwrap() = unusual_value(dice),
    }
}

/// Replaces all quantities.
fn amounts(value: &mut Value, dice: &mut Dice) {
    match value {
        Value::Object(fields) => {
            for (key, inner) in fields {
                match key.as_str() {
                    "requests" | "limits" => {
                        let amount = |dice: &mut Dice| match dice.below(2) {
                            0 => json!(*dice.pick(&EXTREMES)),
                            _ => json!(*dice.pick(&AMOUNTS)),
                        };
                        let mut other = Map::new();
                        other.insert("cpu".into(), amount(dice));
                        other.insert("memory".into(), amount(dice));
                        *inner = Value::Object(other);
                    }
                    "size" | "size_limit" => *inner = json!(*dice.pick(&AMOUNTS)),
                    _ => amounts(inner, dice),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| amounts(item, dice)),
        _ => {}
    }
}

/// Duplicates a field.
fn twice(text: &str, dice: &mut Dice) -> String {
    let keys: Vec<&str> =
        text.split('"').filter(|part| part.chars().all(|it| it.is_ascii_lowercase())).collect();
    let Some(key) = (!keys.is_empty()).then(|| *dice.pick(&keys)) else { return text.to_owned() };
    text.replacen(
        &format!("\"{key}\":"),
        &format!("\"{key}\":{},\"{key}\":", unusual_value(dice)),
        1,
    )
}

/// Numbers that no integer or float type can represent.
fn other_numbers(text: &str, dice: &mut Dice) -> String {
    let number = *dice.pick(&[
        "1e400",
        "-1e400",
        "123456789012345678901234567890",
        "-0",
        "1E+2",
        "0.1e-400",
    ]);
    let digits = *dice.pick(&[":1", ":2", ":3", ":8080", ":9000", ":0"]);
    text.replacen(digits, &format!(":{number}"), 1)
}
