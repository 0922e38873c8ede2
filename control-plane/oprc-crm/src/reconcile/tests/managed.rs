//! Server-side apply with field ownership, as the API server implements it.
//!
//! It knows as much of Kubernetes' schemas as the objects of CRM need.

use serde_json::{Map, Value, json};

/// How a list is merged.
enum List {
    /// Elements are identified by these fields.
    By(&'static [&'static str]),
    /// Elements are identified by value.
    Set,
    /// It is replaced as a whole.
    Atomic,
}

fn list(field: &str, items: &[Value]) -> List {
    match field {
        "containers" | "env" | "volumes" | "imagePullSecrets" => List::By(&["name"]),
        "volumeMounts" => List::By(&["mountPath"]),
        "ports" if items.iter().any(|it| it.get("containerPort").is_some()) => {
            List::By(&["containerPort", "protocol"])
        }
        "ports" => List::By(&["port", "protocol"]),
        "ownerReferences" => List::By(&["uid"]),
        "topologySpreadConstraints" => List::By(&["topologyKey", "whenUnsatisfiable"]),
        "finalizers" => List::Set,
        _ => List::Atomic,
    }
}

/// Objects that are owned as a whole.
fn whole(field: &str) -> bool {
    matches!(field, "selector" | "labelSelector" | "secretKeyRef" | "configMapKeyRef" | "fieldRef")
}

/// Knative's schema says of most lists that they are replaced as a whole.
fn atomic_lists(object: &Value) -> bool {
    object.get("apiVersion").and_then(Value::as_str).is_some_and(|it| it.contains("knative"))
}

/// The key of a list element in managed fields.
fn element_key(kind: &List, item: &Value) -> Option<String> {
    match kind {
        List::By(names) => {
            let key: Map<String, Value> =
                names.iter().map(|name| ((*name).to_owned(), item[*name].clone())).collect();
            Some(format!("k:{}", Value::Object(key)))
        }
        List::Set => Some(format!("v:{item}")),
        List::Atomic => None,
    }
}

/// A walk over an object, field by field.
#[derive(Clone, Copy)]
struct Schema {
    atomic_lists: bool,
}

impl Schema {
    fn of(object: &Value) -> Self {
        Self { atomic_lists: atomic_lists(object) }
    }

    /// Fields and elements of a value with their keys; none for what is owned as a whole.
    fn parts<'a>(self, field: &str, value: &'a Value) -> Option<Vec<(String, &'a str, &'a Value)>> {
        match value {
            Value::Object(map) if !map.is_empty() && !whole(field) => Some(
                map.iter()
                    .map(|(name, below)| (format!("f:{name}"), name.as_str(), below))
                    .collect(),
            ),
            Value::Array(items) if !(self.atomic_lists && field != "ownerReferences") => {
                let kind = list(field, items);
                items.iter().map(|item| Some((element_key(&kind, item)?, "", item))).collect()
            }
            _ => None,
        }
    }

    /// The set of fields that a value has.
    fn fields(self, field: &str, value: &Value) -> Value {
        let mut set = Map::new();
        for (key, name, below) in self.parts(field, value).into_iter().flatten() {
            let mut fields = self.fields(name, below);
            if key.starts_with("k:") {
                fields["."] = json!({});
            }
            set.insert(key, fields);
        }
        Value::Object(set)
    }

    /// The fields of one value that another doesn't have, or has otherwise.
    fn difference(self, field: &str, value: &Value, other: Option<&Value>) -> Option<Value> {
        let Some(other) = other else { return Some(self.fields(field, value)) };
        let (Some(parts), Some(others)) = (self.parts(field, value), self.parts(field, other))
        else {
            return (value != other).then(|| self.fields(field, value));
        };
        let mut set = Map::new();
        for (key, name, below) in parts {
            let known = others.iter().find(|(other, ..)| *other == key).map(|(.., it)| *it);
            if let Some(fields) = self.difference(name, below, known) {
                set.insert(key, fields);
            }
        }
        (!set.is_empty()).then_some(Value::Object(set))
    }

    /// Merges a manifest into the live value.
    fn merge(self, field: &str, live: &mut Value, manifest: &Value) {
        match (live, manifest) {
            (Value::Object(live), Value::Object(manifest)) if !whole(field) => {
                for (name, below) in manifest {
                    match live.get_mut(name) {
                        Some(live) => self.merge(name, live, below),
                        None => drop(live.insert(name.clone(), below.clone())),
                    }
                }
            }
            (Value::Array(live), Value::Array(items)) if self.parts(field, manifest).is_some() => {
                let kind = list(field, items);
                // In the order of the manifest; those of others come after.
                let mut others = std::mem::take(live);
                for item in items {
                    let key = element_key(&kind, item);
                    let known = others.iter().position(|it| element_key(&kind, it) == key);
                    let mut merged = known.map_or_else(|| item.clone(), |at| others.remove(at));
                    self.merge("", &mut merged, item);
                    live.push(merged);
                }
                live.append(&mut others);
            }
            (live, manifest) => *live = manifest.clone(),
        }
    }
}

/// The value at a key of managed fields.
fn at_mut<'a>(value: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    if let Some(name) = key.strip_prefix("f:") {
        return value.get_mut(name);
    }
    let place = position(value, key)?;
    value.get_mut(place)
}

fn position(value: &Value, key: &str) -> Option<usize> {
    let items = value.as_array()?;
    if let Some(text) = key.strip_prefix("v:") {
        let value: Value = serde_json::from_str(text).unwrap();
        return items.iter().position(|it| *it == value);
    }
    let names: Map<String, Value> = serde_json::from_str(key.strip_prefix("k:")?).unwrap();
    items.iter().position(|it| names.iter().all(|(name, value)| it.get(name) == Some(value)))
}

fn remove_at(value: &mut Value, key: &str) {
    if let Some(name) = key.strip_prefix("f:") {
        value.as_object_mut().map(|map| map.remove(name));
    } else if let Some(place) = position(value, key) {
        value.as_array_mut().map(|items| items.remove(place));
    }
}

fn entries(set: &Value) -> impl Iterator<Item = (&String, &Value)> {
    set.as_object().into_iter().flatten().filter(|(key, _)| *key != ".")
}

fn is_empty(set: &Value) -> bool {
    entries(set).next().is_none()
}

/// Removes fields that were applied before and aren't any more, unless another manager owns them.
fn forget(live: &mut Value, before: &Value, after: &Value, others: &[&Value]) {
    for (key, below) in entries(before) {
        let others: Vec<&Value> = others.iter().filter_map(|set| set.get(key)).collect();
        let again = after.get(key);
        if again.is_none() && others.is_empty() && (is_empty(below) || key.starts_with("k:")) {
            remove_at(live, key);
            continue;
        }
        let Some(inner) = at_mut(live, key) else { continue };
        forget(inner, below, again.unwrap_or(&Value::Null), &others);
        let empty = inner.as_object().is_some_and(Map::is_empty)
            || inner.as_array().is_some_and(Vec::is_empty);
        if empty && again.is_none() && others.is_empty() {
            remove_at(live, key);
        }
    }
}

/// One set of fields without those of another.
fn without(set: &Value, other: &Value) -> Option<Value> {
    if is_empty(set) || is_empty(other) {
        return None;
    }
    let mut left = Map::new();
    for (key, below) in entries(set) {
        match other.get(key) {
            None => drop(left.insert(key.clone(), below.clone())),
            Some(other) => {
                if let Some(mut below) = without(below, other) {
                    if key.starts_with("k:") {
                        below["."] = json!({});
                    }
                    left.insert(key.clone(), below);
                }
            }
        }
    }
    (!left.is_empty()).then_some(Value::Object(left))
}

/// Both sets of fields.
fn union(set: &mut Value, other: &Value) {
    for (key, below) in other.as_object().into_iter().flatten() {
        match set.get_mut(key) {
            Some(known) => union(known, below),
            None => set[key] = below.clone(),
        }
    }
}

/// The part of an object that can be owned.
fn ownable(object: &Value) -> Value {
    let mut object = object.clone();
    let map = object.as_object_mut().unwrap();
    for name in ["apiVersion", "kind", "status"] {
        map.remove(name);
    }
    let meta = map.get_mut("metadata").and_then(Value::as_object_mut).unwrap();
    meta.retain(|name, _| {
        matches!(name.as_str(), "labels" | "annotations" | "ownerReferences" | "finalizers")
    });
    object
}

fn managers(object: &Value) -> Vec<Value> {
    object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default()
}

fn is(entry: &Value, manager: &str, operation: &str) -> bool {
    entry["manager"] == manager && entry["operation"] == operation
}

fn disown(managers: &mut Vec<Value>, changed: &Value, spared: impl Fn(&Value) -> bool) {
    managers.retain_mut(|entry| {
        if spared(entry) || is_empty(changed) {
            return true;
        }
        let left = without(&entry["fieldsV1"], changed);
        entry["fieldsV1"] = left.clone().unwrap_or_default();
        left.is_some()
    });
}

/// The object that a forced apply leads to.
pub(super) fn apply(live: Option<&Value>, manifest: &Value, manager: &str) -> Value {
    let schema = Schema::of(manifest);
    let set = schema.fields("", &ownable(manifest));
    let mut object = live.cloned().unwrap_or_else(|| manifest.clone());
    let mut managers = managers(&object);
    let ours = |entry: &Value| is(entry, manager, "Apply");
    let before = managers.iter().find(|it| ours(it)).map(|it| it["fieldsV1"].clone());
    if let Some(live) = live {
        let taken = schema.difference("", &ownable(manifest), Some(&ownable(live)));
        disown(&mut managers, &taken.unwrap_or_default(), ours);
        schema.merge("", &mut object, manifest);
        let others: Vec<&Value> =
            managers.iter().filter(|it| !ours(it)).map(|it| &it["fieldsV1"]).collect();
        forget(&mut object, &before.unwrap_or_default(), &set, &others);
    }
    managers.retain(|it| !ours(it));
    managers.push(json!({"manager": manager, "operation": "Apply", "fieldsV1": set}));
    object["metadata"]["managedFields"] = managers.into();
    object
}

/// Records the manager of an update: it becomes the only owner of what it changed.
pub(super) fn update(before: &Value, after: &mut Value, manager: &str) {
    let schema = Schema::of(before);
    let (old, new) = (ownable(before), ownable(after));
    let gone = schema.difference("", &old, Some(&new)).unwrap_or_default();
    let come = schema.difference("", &new, Some(&old)).unwrap_or_default();
    let mut managers = managers(before);
    disown(&mut managers, &gone, |_| false);
    disown(&mut managers, &come, |_| false);
    if !is_empty(&come) {
        match managers.iter_mut().find(|it| is(it, manager, "Update")) {
            Some(entry) => union(&mut entry["fieldsV1"], &come),
            None => {
                managers.push(json!({"manager": manager, "operation": "Update", "fieldsV1": come}));
            }
        }
    }
    after["metadata"]["managedFields"] = managers.into();
}

#[test]
fn apply_takes_over_its_fields_and_keeps_the_rest() {
    let first = json!({"metadata": {"labels": {"a": "1", "b": "1"}}, "spec": {"env": [
        {"name": "X", "value": "1"}, {"name": "Y", "value": "1"},
    ]}});
    let made = apply(None, &first, "us");
    let mut edited = made.clone();
    edited["metadata"]["labels"]["theirs"] = json!("1");
    edited["spec"]["env"][0]["value"] = json!("2");
    update(&made, &mut edited, "them");
    let second = json!({"metadata": {"labels": {"a": "2"}}, "spec": {"env": [
        {"name": "X", "value": "3"},
    ]}});
    let after = apply(Some(&edited), &second, "us");
    assert_eq!(after["metadata"]["labels"], json!({"a": "2", "theirs": "1"}));
    assert_eq!(after["spec"], second["spec"]);
    let theirs = &managers(&after)[0];
    assert_eq!(theirs["fieldsV1"], json!({"f:metadata": {"f:labels": {"f:theirs": {}}}}));
    assert_eq!(apply(Some(&after), &second, "us"), after, "the same again changes nothing");
}
