//! Validation by the CRD, which the API server enforces for all clients.

use std::{collections::BTreeSet, fs};

use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use oprc_crm::crd::ClassRuntime;
use oprc_tests::{HELLO, TestNamespace, in_namespace, workspace};
use serde_json::{Value, json};

use crate::bystander::raw_classes;

/// A path in the schema, and the message of its rule.
type Rule = (String, String);

/// All validation rules of the CRD.
fn rules() -> BTreeSet<Rule> {
    let file = workspace().join("k8s/crds/classruntimes.gen.yaml");
    let all: Vec<Value> = serde_saphyr::from_multiple(&fs::read_to_string(file).unwrap()).unwrap();
    let mut found = BTreeSet::new();
    collect(&all[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "", &mut found);
    found
}

fn collect(schema: &Value, here: &str, found: &mut BTreeSet<Rule>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let message = rule["message"].as_str().expect("a message in our own words");
        found.insert((here.to_owned(), message.to_owned()));
    }
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let location = if here.is_empty() { name.clone() } else { format!("{here}.{name}") };
        collect(inner, &location, found);
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            collect(&schema[inner], &format!("{here}[]"), found);
        }
    }
}

/// Objects that violate one rule each, with its path and message.
fn broken() -> Vec<(Rule, Value)> {
    let one = "at most one of value, secret and config_map may be set";
    let either = "exactly one of secret and config_map must be set";
    let exactly = "exactly one of secret, config_map, claim and empty_dir must be set";
    let twice = "availability and availability_pct are mutually exclusive";
    let variable = json!([{"name": "A", "value": "b", "secret": {"name": "s", "key": "k"}}]);
    let available = json!({"availability": 0.9, "availability_pct": 90});
    let of_functions = [
        (
            "provision",
            "min_scale must not be greater than max_scale",
            json!({"min_scale": 3, "max_scale": 2}),
        ),
        ("provision.env[]", one, json!({"env": variable})),
        ("provision.env_from[]", either, json!({"env_from": [{"secret": "s", "config_map": "c"}]})),
        ("provision.volume_mounts[]", exactly, json!({"volume_mounts": [{"mount_path": "/a"}]})),
        ("requirements", twice, available.clone()),
    ];
    let mut all = Vec::new();
    for (location, message, wrong) in of_functions {
        let field = location.split('.').next().unwrap();
        let mut function = json!({"image": HELLO, field: wrong});
        let alone = json!({"function": function});
        all.push(((format!("spec.function.{location}"), message.to_owned()), alone));
        function["key"] = json!("greet");
        let several = json!({"functions": [function]});
        all.push(((format!("spec.functions[].{location}"), message.to_owned()), several));
    }
    let of_classes = [
        ("spec.nfr_requirements", twice, "nfr_requirements", available),
        ("spec.odgm_config.env[]", one, "odgm_config", json!({"env": variable})),
        (
            "spec",
            "function and functions are mutually exclusive",
            "function",
            json!({"image": HELLO}),
        ),
    ];
    for (location, message, field, wrong) in of_classes {
        all.push(((location.to_owned(), message.to_owned()), with(field, wrong)));
    }
    let mut hinted = with("selected_template", json!("knative"));
    hinted["template_hint"] = json!("job");
    let message = "selected_template and template_hint must be equal";
    all.push((("spec".to_owned(), message.to_owned()), hinted));
    all
}

/// Changes that violate one rule each: message, former and new specification.
fn broken_by_change() -> Vec<(&'static str, Value, Value)> {
    let environment = "target_environment is immutable";
    let unit = "deployment_unit.id is immutable";
    let (prod, test) =
        (with("target_environment", json!("prod")), with("target_environment", json!("test")));
    let (mine, yours) =
        (with("deployment_unit.id", json!("mine")), with("deployment_unit.id", json!("yours")));
    vec![
        (environment, prod.clone(), test),
        (environment, prod.clone(), valid()),
        (environment, valid(), prod),
        (unit, mine.clone(), yours),
        (unit, mine.clone(), valid()),
        (unit, valid(), mine),
    ]
}

/// Values just outside of the bounds of the main fields.
fn out_of_bounds() -> Vec<(&'static str, Value)> {
    let letters = |count: usize| json!("a".repeat(count));
    let functions: Vec<Value> =
        (0..65).map(|at| json!({"key": format!("f{at}"), "image": HELLO})).collect();
    let addons: Vec<String> = (0..17).map(|at| format!("addon-{at}")).collect();
    vec![
        ("addons", json!(addons)),
        ("constraints.hard_latency_ms", json!(0)),
        ("constraints.max_concurrency", json!(1001)),
        ("data_retention.on_delete", json!("keep")),
        ("deployment_unit.id", letters(254)),
        ("functions", json!(functions)),
        ("functions.0.access", json!("SECRET")),
        ("functions.0.config.timeout_ms", json!(0)),
        ("functions.0.health_check.path", json!("healthz")),
        ("functions.0.image", letters(0)),
        ("functions.0.image", letters(1025)),
        ("functions.0.key", json!("-")),
        ("functions.0.key", letters(254)),
        ("functions.0.port", json!(0)),
        ("functions.0.port", json!(65_536)),
        ("functions.0.provision.max_scale", json!(0)),
        ("functions.0.provision.min_scale", json!(-1)),
        ("functions.0.provision.requests.cpu", letters(33)),
        ("functions.0.provision.security.level", json!("privileged")),
        ("functions.0.type", json!("OTHER")),
        ("nfr_requirements.availability", json!(1.5)),
        ("nfr_requirements.consistency", json!("perhaps")),
        ("nfr_requirements.max_latency_ms", json!(0)),
        ("odgm_config.partition_count", json!(4097)),
        ("odgm_config.replicas", json!(100)),
        ("odgm_config.shard_type", json!("other")),
        ("odgm_config.storage.size", letters(0)),
        ("resource_allocation.replication_factor", json!(0)),
        ("rollout.drain_seconds", json!(3601)),
        ("rollout.progress_deadline_seconds", json!(0)),
        ("selected_template", letters(64)),
        ("state.state_type", json!("OTHER")),
        ("target_environment", letters(0)),
        ("target_environment", letters(64)),
    ]
}

fn valid() -> Value {
    json!({"functions": [{"key": "greet", "image": HELLO}]})
}

/// A valid specification except for one field.
fn with(path: &str, wrong: Value) -> Value {
    let mut spec = valid();
    let mut location = &mut spec;
    for part in path.split('.') {
        location = match part.parse::<usize>() {
            Ok(at) => &mut location[at],
            Err(_) => &mut location[part],
        };
    }
    *location = wrong;
    spec
}

/// Applies a class; without a name it is a dry run.
async fn apply(ns: &TestNamespace, name: Option<&str>, spec: &Value) -> Result<(), kube::Error> {
    let kind = ApiResource::erase::<ClassRuntime>(&());
    let class = DynamicObject::new(name.unwrap_or("dry"), &kind).data(json!({"spec": spec}));
    let mut params = PatchParams::apply("tests");
    params.dry_run = name.is_none();
    let applied =
        raw_classes(ns).patch(name.unwrap_or("dry"), &params, &Patch::Apply(&class)).await;
    applied.map(|_| ())
}

/// Asserts that this field was rejected with this message.
fn assert_rejected(outcome: Result<(), kube::Error>, location: &str, message: &str, spec: &Value) {
    let what = format!("{location}: {message}: {spec}");
    let status = match outcome {
        Err(kube::Error::Api(status)) => status,
        other => panic!("{other:?} for {what}"),
    };
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"), "{status:?} for {what}");
    let causes = &status.details.as_ref().unwrap().causes;
    let is_field = |field: &str| field.replace("[0]", "[]") == location;
    assert!(
        causes.iter().any(|it| is_field(&it.field) && it.message.contains(message)),
        "{causes:?} for {what}"
    );
}

#[tokio::test]
async fn enforces_every_validation_rule() {
    let (broken, changes) = (broken(), broken_by_change());
    let of_changes = changes.iter().map(|(message, ..)| ("spec".to_owned(), (*message).to_owned()));
    let covered: BTreeSet<Rule> =
        broken.iter().map(|(rule, _)| rule.clone()).chain(of_changes).collect();
    assert_eq!(rules(), covered);
    in_namespace(async |ns: &TestNamespace| {
        apply(ns, None, &valid()).await.unwrap();
        for ((field, message), spec) in &broken {
            assert_rejected(apply(ns, None, spec).await, field, message, spec);
        }
        for (at, (message, before, after)) in changes.iter().enumerate() {
            let name = format!("changed-{at}");
            apply(ns, Some(&name), before).await.unwrap();
            assert_rejected(apply(ns, Some(&name), after).await, "spec", message, after);
            // Other changes are accepted.
            let mut other = before.clone();
            other["functions"][0]["port"] = json!(9000);
            apply(ns, Some(&name), &other).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn enforces_bounds_of_the_main_fields() {
    in_namespace(async |ns: &TestNamespace| {
        for (path, wrong) in out_of_bounds() {
            let spec = with(path, wrong);
            let field = format!("spec.{}", path.replace(".0", "[]"));
            assert_rejected(apply(ns, None, &spec).await, &field, "", &spec);
        }
    })
    .await;
}
