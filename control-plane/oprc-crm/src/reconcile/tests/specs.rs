//! Specifications for tests.

use proptest::prelude::*;
use serde_json::{Value, json};

/// A class of one function.
pub(super) fn one(template: &str) -> Value {
    json!({"selected_template": template, "functions": [{"key": "alpha", "image": "img:1"}]})
}

fn function(key: &'static str) -> impl Strategy<Value = Value> {
    let image = prop_oneof!["img:1", "img:2"].prop_map(|it: String| it);
    let bounds = prop_oneof![
        Just(json!({})),
        Just(json!({"min_scale": 1, "max_scale": 1})),
        Just(json!({"min_scale": 2})),
        Just(json!({"min_scale": 1, "max_scale": 3})),
        Just(json!({"min_scale": 0, "max_scale": 8})),
        Just(json!({"min_scale": 3, "max_scale": 5})),
    ];
    let env = prop_oneof![
        Just(json!([])),
        Just(json!([{"name": "A", "value": "1"}])),
        Just(
            json!([{"name": "A", "value": "2"}, {"name": "B", "secret": {"name": "s", "key": "k"}}])
        ),
        // An empty value is the same as none.
        Just(json!([{"name": "B", "value": ""}])),
    ];
    let limits =
        prop_oneof![Just(json!({})), Just(json!({"cpu": "1000m"})), Just(json!({"cpu": "1"}))];
    (image, bounds, env, limits).prop_map(move |(image, mut provision, env, limits)| {
        provision["env"] = env;
        provision["limits"] = limits;
        json!({"key": key, "image": image, "provision": provision})
    })
}

fn functions() -> impl Strategy<Value = Vec<Value>> {
    let maybe = |key| prop::option::weighted(0.5, function(key));
    (function("alpha"), maybe("beta"), maybe("gamma"))
        .prop_map(|(alpha, beta, gamma)| [Some(alpha), beta, gamma].into_iter().flatten().collect())
}

fn odgm() -> impl Strategy<Value = Option<Value>> {
    let grid = |replicas: i32, persistence: &str| {
        json!({
            "replicas": replicas,
            "collections": [{"name": "things", "persistence_mode": persistence}],
        })
    };
    prop_oneof![
        3 => Just(None),
        1 => Just(Some(grid(1, "ephemeral"))),
        1 => Just(Some(grid(1, "persistent"))),
        1 => Just(Some(grid(3, "persistent"))),
    ]
}

fn template() -> impl Strategy<Value = Option<&'static str>> {
    prop::sample::select(vec![
        None,
        Some("dev"),
        Some("edge"),
        Some("full"),
        Some("knative"),
        Some("unified"),
        Some("job"),
    ])
}

/// Any valid class; its data may be lost.
pub(super) fn any() -> impl Strategy<Value = Value> {
    (functions(), odgm(), template(), any_single()).prop_map(
        |(mut functions, odgm, template, single)| {
            let mut spec = json!({"data_retention": {"allow_data_loss": true}});
            if single {
                let mut only = functions.swap_remove(0);
                only.as_object_mut().unwrap().remove("key");
                spec["function"] = only;
            } else {
                spec["functions"] = functions.into();
            }
            if let Some(odgm) = odgm {
                spec["addons"] = json!(["odgm"]);
                spec["odgm_config"] = odgm;
            }
            if let Some(template) = template {
                spec["selected_template"] = json!(template);
            }
            spec
        },
    )
}

/// A class that is rejected, paused, or rolled back.
pub(super) fn obstacle() -> impl Strategy<Value = Value> {
    let why =
        prop::sample::select(vec!["no template", "no image", "too fast", "paused", "goes back"]);
    (any(), why).prop_map(|(mut spec, why)| {
        match why {
            "no template" => spec["selected_template"] = json!("no-such-template"),
            "no image" => spec = json!({"functions": [{"key": "alpha", "image": ""}]}),
            "too fast" => {
                spec["selected_template"] = json!("knative");
                spec["constraints"] = json!({"hard_latency_ms": 1});
            }
            "paused" => spec["paused"] = json!(true),
            _ => spec["rollout"] = json!({"rollback": true, "progress_deadline_seconds": 5}),
        }
        spec
    })
}

fn any_single() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.15)
}
