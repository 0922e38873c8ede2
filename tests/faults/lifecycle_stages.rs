//! Stages in the lifecycle of a class, and the objects at the end of each.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kube::{ResourceExt, api::ListParams};
use oprc_crm::{
    crd::{ClassRuntimeStatus, Phase},
    kinds::BUILT_IN,
    reconcile::CORRELATION,
};
use oprc_tests::{
    TestNamespace,
    class::{
        AVAILABLE_TIMEOUT, calls_once, classes, delete, deploy, hello, list, list_objects, spec_of,
        wait_deleted, wait_for_status, with_odgm,
    },
    crm::{Client, Options},
    eventually,
    write_cutoff::WriteCutoff,
};
use oprc_unit::names;
use serde::Serialize;
use serde_json::{Value, json};
use tonic::{Code, Status};

/// Create, change, remove a function, remove the data grid, replace by a Job, delete.
pub(crate) const STAGES: usize = 6;
/// Bound on convergence after a fault.
const AFTER: Duration = Duration::from_mins(3);

/// Objects by kind and name, without fields that differ between runs.
pub(crate) type State = BTreeMap<String, Value>;

/// The final state of a stage without faults, and its number of writes.
pub(crate) struct Baseline {
    pub(crate) state: State,
    pub(crate) writes: u64,
}

fn stage_spec(stage: usize) -> Option<Value> {
    let three = [hello("a"), hello("b"), hello("c")];
    let mut spec = match stage {
        0 | 1 => with_odgm(&three),
        2 => with_odgm(&three[..2]),
        3 => spec_of(&three[..2]),
        // It calls the function that it replaces, which exists until the Job is done.
        4 => {
            spec_of(&[calls_once("a", &format!("http://{}", names::function("class", Some("a"))))])
        }
        _ => return None,
    };
    if stage == 4 {
        spec["selected_template"] = json!("job");
    }
    if stage == 1 {
        spec["functions"][0]["config"] = json!({"env": {"CHANGED": "yes"}});
    }
    // There are no clients during draining.
    spec["rollout"] = json!({"drain_seconds": 1});
    Some(spec)
}

/// Sends the request of a stage.
pub(crate) async fn request_stage(crm: &Client, stage: usize) -> Result<(), Status> {
    match stage_spec(stage) {
        Some(spec) => deploy(crm, "class", &spec).await.map(|_| ()),
        None => delete(crm, "class").await,
    }
}

/// Repeats the request, as clients without a response do. A deleted class is not an error.
pub(crate) async fn repeat_request(crm: &Client, stage: usize) {
    match request_stage(crm, stage).await {
        Ok(()) => {}
        Err(status) if status.code() == Code::NotFound && stage_spec(stage).is_none() => {}
        Err(status) => panic!("{status}"),
    }
}

/// The class's generation, which distinguishes the status of a stage from the former one.
pub(crate) async fn generation(ns: &TestNamespace) -> Option<i64> {
    classes(ns).get_opt("class").await.unwrap().and_then(|class| class.metadata.generation)
}

/// Waits until a later generation than `before` is Available and nothing drains.
pub(crate) async fn wait_for_stage(ns: &TestNamespace, stage: usize, before: Option<i64>) {
    if stage_spec(stage).is_none() {
        return Box::pin(wait_deleted(ns, "class")).await;
    }
    let what = format!("stage {stage} to be Available");
    let is_reached = |status: &ClassRuntimeStatus| {
        status.phase == Phase::Available
            && status.observed_generation > before
            && status.replaced.is_none()
    };
    // Boxed, because the future is large.
    Box::pin(wait_for_status(ns, "class", &what, AVAILABLE_TIMEOUT, is_reached)).await;
}

/// Waits for the final state of a run without faults.
pub(crate) async fn wait_for_state(ns: &TestNamespace, what: &str, expected: &State) {
    eventually(&format!("the state of the baseline, {what}"), AFTER, || async {
        let differ = differences(&state(ns).await, expected);
        if differ.is_empty() { Ok(()) } else { Err(format!("{differ:#?}")) }
    })
    .await;
}

/// Runs all stages without faults, each with a new CRM.
pub(crate) async fn record_baseline(ns: &TestNamespace, options: &Options) -> Vec<Baseline> {
    let mut stages = Vec::new();
    for stage in 0..STAGES {
        let before = generation(ns).await;
        let cut = WriteCutoff::never();
        let crm = cut.start(ns, options).await;
        request_stage(&crm.client, stage).await.unwrap();
        wait_for_stage(ns, stage, before).await;
        // Obsolete objects are deleted after their pods.
        eventually("obsolete objects to be deleted", AFTER, || async {
            let going = state(ns).await;
            let going =
                going.iter().filter(|(_, it)| it["metadata"].get("deletionTimestamp").is_some());
            let names: Vec<_> = going.map(|(name, _)| name.clone()).collect();
            if names.is_empty() { Ok(()) } else { Err(format!("{names:?}")) }
        })
        .await;
        cut.quiet().await;
        let state = state(ns).await;
        if stage == STAGES - 1 {
            assert_eq!(list_objects(ns).await, Vec::<String>::new());
            assert!(state.is_empty(), "{state:?}");
        }
        stages.push(Baseline { state, writes: cut.writes() });
    }
    stages
}

/// The class and its children.
pub(crate) async fn state(ns: &TestNamespace) -> State {
    let mut state = children(ns).await;
    for class in classes(ns).list(&ListParams::default()).await.unwrap() {
        let phase = class.status.as_ref().map(|status| status.phase);
        let mut without_volatile_fields = without_volatile_fields(&class, "");
        without_volatile_fields["phase"] = json!(phase);
        state.insert(format!("ClassRuntime/{}", class.name_any()), without_volatile_fields);
    }
    state
}

/// The children of all classes.
pub(crate) async fn children(ns: &TestNamespace) -> State {
    let class = classes(ns).get_opt("class").await.unwrap();
    let owner = class.and_then(|class| class.metadata.uid).unwrap_or_default();
    let mut state = State::new();
    for kind in &BUILT_IN {
        for object in list(ns, kind).await {
            state.insert(
                format!("{kind}/{}", object.name_any()),
                without_volatile_fields(&object, &owner),
            );
        }
    }
    state
}

/// An object without its status and fields that differ between runs. It still shows whether its
/// owner is the present class.
fn without_volatile_fields(object: &(impl Serialize + ResourceExt), owner: &str) -> Value {
    // The selector of a Job contains its uid.
    let known_by = object.uid().unwrap_or_default();
    let text = serde_json::to_string(object).unwrap().replace(&known_by, "its own");
    let mut object: Value = serde_json::from_str(&text).unwrap();
    let fields = |part: &mut Value, names: &[&str]| {
        if let Some(part) = part.as_object_mut() {
            part.retain(|name, _| !names.contains(&name.as_str()));
        }
    };
    fields(&mut object, &["status"]);
    fields(
        &mut object["metadata"],
        &["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"],
    );
    fields(&mut object["spec"], &["clusterIP", "clusterIPs"]);
    if let Some(annotations) = object.pointer_mut("/metadata/annotations") {
        fields(annotations, &[CORRELATION]);
    }
    let owners = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut);
    for reference in owners.into_iter().flatten() {
        if reference["uid"] == json!(owner) {
            reference["uid"] = json!("the class's");
        }
    }
    object
}

/// Differences by object and field.
pub(crate) fn differences(found: &State, expected: &State) -> Vec<String> {
    let names: BTreeSet<_> = found.keys().chain(expected.keys()).collect();
    let mut all = Vec::new();
    for name in names {
        match (found.get(name), expected.get(name)) {
            (Some(found), Some(expected)) => compare(name, found, expected, &mut all),
            (Some(_), None) => all.push(format!("{name} is left over")),
            _ => all.push(format!("{name} is missing")),
        }
    }
    all
}

fn compare(at: &str, found: &Value, expected: &Value, all: &mut Vec<String>) {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            let names: BTreeSet<_> = found.keys().chain(expected.keys()).collect();
            for name in names {
                let at = format!("{at}.{name}");
                let of = |fields: &serde_json::Map<String, Value>| {
                    fields.get(name).cloned().unwrap_or_default()
                };
                compare(&at, &of(found), &of(expected), all);
            }
        }
        _ if found == expected => {}
        _ => all.push(format!("{at} is {found} instead of {expected}")),
    }
}
