//! Tolerant decoding of ClassRuntimes.

use std::collections::BTreeMap;

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};
use kube::Resource;
use oprc_unit::{UnitSpec, Violation};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use serde_path_to_error::{Path, Segment};

use crate::{
    crd::{ClassRuntime, ClassRuntimeStatus},
    reconcile::{CORRELATION, ENFORCEMENT, ObservedClass, render::DEPLOYMENT_ID},
};

/// A ClassRuntime whose spec and status are still text, of any shape and depth.
#[derive(Resource, Clone, Debug, Serialize, Deserialize)]
#[resource(inherit = "ClassRuntime")]
pub struct RawClass {
    pub metadata: ObjectMeta,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spec: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<Box<RawValue>>,
}

/// Decodes a ClassRuntime. What can't be decoded of one must not affect others.
pub fn decode(class: &RawClass) -> ObservedClass {
    let meta = &class.metadata;
    let annotation = |name: &str| meta.annotations.as_ref().and_then(|all| all.get(name)).cloned();
    let time = |time: &Option<Time>| -> Option<Timestamp> { time.as_ref().map(|time| time.0) };
    let text = class.spec.as_ref().map_or("{}", |spec| spec.get());
    let spec = serde_json::from_str::<Value>(text)
        .map_err(|error| Violation { field: "spec".to_owned(), message: error.to_string() })
        .and_then(decode_spec);
    let name = meta.name.clone().unwrap_or_default();
    let namespace = meta.namespace.clone().unwrap_or_default();
    let on_dropped = |path: &str, error: &str| {
        tracing::warn!(
            namespace,
            class_runtime = name,
            path,
            error,
            "dropped an unreadable entry of status"
        );
    };
    let status = class.status.as_ref().and_then(|it| decode_status(it.get(), on_dropped));
    ObservedClass {
        uid: meta.uid.clone().unwrap_or_default(),
        resource_version: meta.resource_version.clone().unwrap_or_default(),
        generation: meta.generation.unwrap_or(0),
        deleting: time(&meta.deletion_timestamp),
        created: time(&meta.creation_timestamp),
        finalizers: meta.finalizers.clone().unwrap_or_default(),
        labels: meta.labels.clone().unwrap_or_default(),
        deployment_id: annotation(DEPLOYMENT_ID),
        correlation_id: annotation(CORRELATION),
        enforcement: annotation(ENFORCEMENT),
        spec,
        status,
        name,
        namespace,
    }
}

/// Decodes a specification; an error names the field by its path.
fn decode_spec(spec: Value) -> Result<UnitSpec, Violation> {
    serde_path_to_error::deserialize(spec).map_err(|error| {
        let path = error.path().to_string();
        let field = if path == "." { "spec".to_owned() } else { format!("spec.{path}") };
        Violation { field, message: error.into_inner().to_string() }
    })
}

/// The id that a class was deployed under, or its name.
pub fn deployment_id(class: &ObservedClass) -> &str {
    class.deployment_id_in(class.spec.as_ref().ok())
}

/// Decodes a status without the entries that can't be decoded. Fields of the data-loss guard are also
/// kept as they were found: a class whose guard can't be read must not lose it.
fn decode_status(text: &str, on_dropped: impl Fn(&str, &str)) -> Option<ClassRuntimeStatus> {
    if let Ok(status) = serde_json::from_str(text) {
        return Some(status);
    }
    // Raw values first: a field may be nested too deeply to be parsed.
    let fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text)
        .inspect_err(|error| on_dropped("status", &error.to_string()))
        .ok()?;
    let mut unreadable = BTreeMap::new();
    let mut drop_entry = |field: &str, path: &str, error: &str| {
        on_dropped(path, error);
        if let Some(raw) = fields.get(field).filter(|_| DATA_GUARD.contains(&field)) {
            let raw = serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().into());
            unreadable.insert(field.to_owned(), raw);
        }
    };
    let mut readable = serde_json::Map::new();
    for (field, raw) in &fields {
        match serde_json::from_str::<Value>(raw.get()) {
            Ok(value) => drop(readable.insert(field.clone(), value)),
            Err(error) => drop_entry(field, field, &error.to_string()),
        }
    }
    let mut readable = Value::Object(readable);
    loop {
        let error = match serde_path_to_error::deserialize(&readable) {
            Ok(status) => return Some(ClassRuntimeStatus { unreadable, ..status }),
            Err(error) => error,
        };
        let path = entry_path(error.path());
        let field = path.first().map(ToString::to_string).unwrap_or_default();
        drop_entry(&field, &error.path().to_string(), &error.inner().to_string());
        remove(&mut readable, &path)?;
    }
}

/// A status as it is written, with the fields of the data-loss guard that couldn't be read.
pub fn encode_status(status: &ClassRuntimeStatus) -> Value {
    let mut encoded = json!(status);
    if let Some(fields) = encoded.as_object_mut() {
        fields.remove("unreadable");
        fields.extend(status.unreadable.clone());
    }
    encoded
}

/// Fields without which CRM could allow a change that loses data.
const DATA_GUARD: [&str; 2] = ["kept_collections", "kept_nodes"];

/// The path of the entry to drop: up to the innermost item of a list, which is dropped as a whole. So
/// is the record for a rollback: a specification without some of its items is another one.
fn entry_path(path: &Path) -> Vec<&Segment> {
    let is_step = |it: &&Segment| matches!(it, Segment::Map { .. } | Segment::Seq { .. });
    let mut steps: Vec<_> = path.iter().filter(is_step).collect();
    if matches!(steps.first(), Some(Segment::Map { key }) if key == "last_available") {
        steps.truncate(1);
    } else if let Some(item) = steps.iter().rposition(|it| matches!(it, Segment::Seq { .. })) {
        steps.truncate(item + 1);
    }
    steps
}

/// Removes the value at a path; none if there is no such value.
fn remove(value: &mut Value, path: &[&Segment]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    let parent = parents.iter().try_fold(value, |value, step| match step {
        Segment::Map { key } => value.get_mut(key),
        Segment::Seq { index } => value.get_mut(index),
        _ => None,
    })?;
    match (last, parent) {
        (Segment::Map { key }, Value::Object(fields)) => fields.remove(key),
        (Segment::Seq { index }, Value::Array(items)) if *index < items.len() => {
            Some(items.remove(*index))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::Phase;

    fn status(status: &Value) -> ClassRuntimeStatus {
        decode_status(&status.to_string(), |_, _| {}).unwrap()
    }

    fn collection(name: &str) -> Value {
        json!({
            "name": name, "partition_count": 4, "replica_count": 1, "shard_type": "basic",
            "persistence_mode": "persistent",
        })
    }

    #[test]
    fn unreadable_entries_are_dropped_and_the_rest_is_kept() {
        let damaged = status(&json!({
            "phase": "Available", "ready": "1/1", "observedGeneration": "three",
            "functions": [
                {"key": "a", "ready": true},
                {"key": "b", "ready": "yes"},
                {"key": "c", "ready": true},
            ],
            "stable_since": {"a": "2026-01-01T00:00:00Z", "b": "yesterday"},
            "selection": {"template": "knative"},
            "kept_collections": [collection("carts")], "kept_nodes": 3,
        }));
        assert_eq!((damaged.phase, damaged.ready.as_deref()), (Phase::Available, Some("1/1")));
        assert_eq!(damaged.observed_generation, None);
        let keys: Vec<_> = damaged.functions.iter().map(|it| it.key.as_str()).collect();
        assert_eq!(keys, ["a", "c"]);
        assert_eq!(damaged.stable_since.keys().collect::<Vec<_>>(), ["a"]);
        assert_eq!(damaged.selection, None, "its profile is missing");
        assert_eq!((damaged.kept_collections.len(), damaged.kept_nodes), (1, Some(3)));
        assert!(damaged.unreadable.is_empty(), "the guard can be read");
    }

    /// A part of the specification must not be restored as if it were the whole.
    #[test]
    fn unreadable_rollback_record_is_dropped_as_a_whole() {
        let record = |port: Value| {
            let functions = json!([{"key": "a", "image": "i"}, {"key": "b", "port": port}]);
            let last = json!({"generation": 3, "spec": {"functions": functions}});
            status(&json!({"phase": "Available", "kept_nodes": 2, "last_available": last}))
        };
        let readable = record(json!(80));
        assert_eq!(readable.last_available.unwrap().spec.functions.len(), 2);
        let damaged = record(json!("eighty"));
        assert_eq!(damaged.last_available, None);
        assert_eq!((damaged.phase, damaged.kept_nodes), (Phase::Available, Some(2)));
    }

    #[test]
    fn unknown_phase_does_not_drop_the_status() {
        let newer = status(&json!({"phase": "Suspended", "kept_nodes": 2}));
        assert_eq!((newer.phase, newer.kept_nodes), (Phase::Pending, Some(2)));
    }

    #[test]
    fn unreadable_data_guard_is_written_back_as_found() {
        let collections = json!([collection("carts"), {"name": "orders", "partition_count": "4"}]);
        let damaged = status(&json!({"kept_collections": collections, "kept_nodes": "many"}));
        assert_eq!(damaged.kept_collections.len(), 1, "the readable one");
        let written = encode_status(&damaged);
        assert_eq!(written["kept_collections"], collections);
        assert_eq!(written["kept_nodes"], "many");
        assert_eq!(written.get("unreadable"), None);
    }

    #[test]
    fn deeply_nested_field_does_not_drop_the_status() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let text = format!(r#"{{"ready": "1/1", "kept_nodes": 2, "odgm": {deep}}}"#);
        let status = decode_status(&text, |_, _| {}).unwrap();
        assert_eq!((status.ready.as_deref(), status.kept_nodes), (Some("1/1"), Some(2)));
        assert_eq!(status.odgm, None);
    }

    #[test]
    fn dropped_entries_are_reported_by_their_path() {
        let dropped = std::cell::RefCell::new(Vec::new());
        let text = r#"{"functions": [{"key": "a"}, {"key": 7}]}"#;
        decode_status(text, |path, _| dropped.borrow_mut().push(path.to_owned())).unwrap();
        assert_eq!(dropped.into_inner(), ["functions[1].key"]);
    }
}
