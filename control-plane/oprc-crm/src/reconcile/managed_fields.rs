//! Compares a manifest with the fields that CRM owns of the live object, by its managed fields.
//!
//! A field that is in the manifest and not owned is a difference, and so is one that is owned and
//! no longer in the manifest. Fields of other managers are ignored. A value that is owned as a
//! whole may contain defaults of the API server.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use oprc_unit::same_quantity;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The fields of an object that a manager owns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnedFields {
    /// The field set, in the API server's notation.
    pub fields: Value,
    /// The object, cut down to those fields.
    pub live: Value,
}

impl OwnedFields {
    /// The fields that a manager owns by apply.
    pub fn of(object: &Value, managed: &[ManagedFieldsEntry], manager: &str) -> Option<Self> {
        let mut own = managed.iter().filter(|entry| is_applied_by(entry, manager));
        let entry = own.find(|it| it.subresource.as_deref().is_none_or(str::is_empty))?;
        let fields = entry.fields_v1.as_ref()?.0.clone();
        let live = prune(object, &fields);
        Some(Self { fields, live })
    }

    /// Whether an apply of the manifest would change anything.
    pub fn differs_from(&self, manifest: &Value) -> bool {
        let mut manifest = manifest.clone();
        // These aren't in field sets.
        if let Some(map) = manifest.as_object_mut() {
            map.remove("apiVersion");
            map.remove("kind");
            if let Some(meta) = map.get_mut("metadata").and_then(Value::as_object_mut) {
                meta.remove("name");
                meta.remove("namespace");
            }
        }
        differs(&manifest, &self.live, &self.fields, "")
    }
}

pub fn is_applied_by(entry: &ManagedFieldsEntry, manager: &str) -> bool {
    entry.manager.as_deref() == Some(manager) && entry.operation.as_deref() == Some("Apply")
}

/// Whether another manager owns a field, such as `/f:spec/f:replicas`.
pub fn owned_by_others(managed: &[ManagedFieldsEntry], manager: &str, field: &str) -> bool {
    managed.iter().any(|entry| {
        let owned = entry.fields_v1.as_ref().and_then(|fields| fields.0.pointer(field));
        entry.manager.as_deref() != Some(manager) && owned.is_some()
    })
}

fn differs(manifest: &Value, live: &Value, fields: &Value, parent: &str) -> bool {
    let Some(set) = fields.as_object().filter(|set| !set.is_empty()) else {
        return !covers(manifest, live, parent);
    };
    let mut owned = set.iter().filter(|(key, _)| *key != ".");
    match manifest {
        Value::Object(map) => {
            let owned_differs = owned.any(|(key, below)| {
                let Some(name) = key.strip_prefix("f:") else { return true };
                match (map.get(name), live.get(name)) {
                    (Some(manifest), Some(live)) => differs(manifest, live, below, name),
                    _ => true,
                }
            });
            owned_differs || map.keys().any(|name| !set.contains_key(&format!("f:{name}")))
        }
        Value::Array(items) => {
            owned.clone().count() != items.len()
                || owned.any(|(key, below)| element_differs(items, live, key, below, parent))
        }
        _ => true,
    }
}

fn element_differs(items: &[Value], live: &Value, key: &str, below: &Value, parent: &str) -> bool {
    let Some(entry) = Entry::of(key) else { return true };
    let live = live.as_array().map(Vec::as_slice).unwrap_or_default();
    match (entry.find(items), entry.find(live)) {
        (Some(manifest), Some(live)) => differs(manifest, live, below, parent),
        _ => true,
    }
}

/// How a field set identifies an element of a list.
enum Entry {
    /// `v:…`, by value.
    Itself(Value),
    /// `k:{…}`, by key fields.
    Keyed(Map<String, Value>),
}

impl Entry {
    fn of(key: &str) -> Option<Self> {
        if let Some(value) = key.strip_prefix("v:") {
            return serde_json::from_str(value).ok().map(Self::Itself);
        }
        serde_json::from_str(key.strip_prefix("k:")?).ok().map(Self::Keyed)
    }

    fn is(&self, item: &Value) -> bool {
        match self {
            Self::Itself(value) => value == item,
            Self::Keyed(names) => names.iter().all(|(name, value)| item.get(name) == Some(value)),
        }
    }

    fn find<'a>(&self, items: &'a [Value]) -> Option<&'a Value> {
        items.iter().find(|item| self.is(item))
    }
}

/// Whether the live value contains everything of the manifest.
fn covers(manifest: &Value, live: &Value, parent: &str) -> bool {
    match (manifest, live) {
        (Value::Object(manifest), Value::Object(live)) => {
            manifest.iter().all(|(name, manifest)| {
                live.get(name).is_some_and(|live| covers(manifest, live, name_or(parent, name)))
            })
        }
        (Value::Array(manifest), Value::Array(live)) => {
            manifest.len() == live.len()
                && manifest.iter().zip(live).all(|(manifest, live)| covers(manifest, live, parent))
        }
        (Value::String(manifest), Value::String(live)) => {
            manifest == live || (is_quantity(parent) && same_quantity(manifest, live))
        }
        (Value::Number(manifest), Value::Number(live)) => manifest.as_f64() == live.as_f64(),
        _ => manifest == live,
    }
}

/// Quantities are below these fields, or in them.
fn name_or<'a>(parent: &'a str, name: &'a str) -> &'a str {
    if is_quantity(parent) { parent } else { name }
}

fn is_quantity(parent: &str) -> bool {
    matches!(
        parent,
        "limits" | "requests" | "cpu" | "memory" | "storage" | "ephemeral-storage" | "sizeLimit"
    )
}

/// An object cut down to a field set.
fn prune(live: &Value, fields: &Value) -> Value {
    let Some(set) = fields.as_object().filter(|set| !set.is_empty()) else { return live.clone() };
    match live {
        Value::Object(map) => {
            let kept = set.iter().filter_map(|(key, below)| {
                let name = key.strip_prefix("f:")?;
                Some((name.to_owned(), prune(map.get(name)?, below)))
            });
            Value::Object(kept.collect())
        }
        // In live order, so that applying the result keeps it.
        Value::Array(items) => {
            let entries: Vec<_> =
                set.iter().filter_map(|(key, below)| Some((Entry::of(key)?, below))).collect();
            let kept = items.iter().filter_map(|item| {
                let (entry, below) = entries.iter().find(|(entry, _)| entry.is(item))?;
                let mut kept = prune(item, below);
                // Key fields stay, even if another manager owns them.
                if let (Some(kept), Entry::Keyed(names)) = (kept.as_object_mut(), entry) {
                    kept.extend(names.clone());
                }
                Some(kept)
            });
            Value::Array(kept.collect())
        }
        _ => live.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn owned(object: &Value, fields: &Value) -> OwnedFields {
        let entry = json!({"manager": "us", "operation": "Apply", "fieldsV1": fields});
        OwnedFields::of(object, &[serde_json::from_value(entry).unwrap()], "us").unwrap()
    }

    fn live() -> OwnedFields {
        owned(
            &json!({
                "metadata": {"name": "x", "labels": {"a": "1", "other": "2"}},
                "spec": {
                    "replicas": 2,
                    "paused": false,
                    "template": {"spec": {"containers": [
                        {"name": "one", "image": "i", "env": [{"name": "A", "value": "1"}],
                         "resources": {"limits": {"cpu": "1"}}, "terminationMessagePath": "/dev/x"},
                        {"name": "injected", "image": "j"},
                    ]}},
                    "metrics": [{"type": "Resource", "defaulted": true}],
                },
            }),
            &json!({
                "f:metadata": {"f:labels": {"f:a": {}}},
                "f:spec": {
                    "f:replicas": {},
                    "f:metrics": {},
                    "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"one\"}": {
                        ".": {}, "f:name": {}, "f:image": {},
                        "f:env": {"k:{\"name\":\"A\"}": {".": {}, "f:name": {}, "f:value": {}}},
                        "f:resources": {"f:limits": {"f:cpu": {}}},
                    }}}},
                },
            }),
        )
    }

    fn manifest() -> Value {
        json!({
            "apiVersion": "v1", "kind": "X",
            "metadata": {"name": "x", "labels": {"a": "1"}},
            "spec": {
                "replicas": 2,
                "template": {"spec": {"containers": [
                    {"name": "one", "image": "i", "env": [{"name": "A", "value": "1"}],
                     "resources": {"limits": {"cpu": "1000m"}}},
                ]}},
                "metrics": [{"type": "Resource"}],
            },
        })
    }

    #[test]
    fn a_manifest_that_matches_is_no_difference() {
        assert!(!live().differs_from(&manifest()));
    }

    #[test]
    fn every_kind_of_difference_is_found() {
        let mut changes = Vec::new();
        let mut set = |pointer: &'static str, value: Value| {
            changes.push((pointer, value));
        };
        set("/spec/replicas", json!(3));
        set("/metadata/labels", json!({"a": "2"}));
        set("/metadata/labels", json!({}));
        set("/metadata/labels", json!({"a": "1", "b": "new"}));
        set("/spec/metrics", json!([{"type": "Pods"}]));
        set("/spec/metrics", json!([]));
        set("/spec/template/spec/containers/0/image", json!("k"));
        set("/spec/template/spec/containers/0/env", json!([]));
        set(
            "/spec/template/spec/containers/0/env",
            json!([{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]),
        );
        set("/spec/template/spec/containers/0/env/0/value", json!("2"));
        set("/spec/template/spec/containers/0/resources/limits/cpu", json!("2"));
        set("/spec/template/spec/containers", json!([]));
        for (pointer, value) in changes {
            let mut object = manifest();
            *object.pointer_mut(pointer).unwrap() = value;
            assert!(live().differs_from(&object), "{pointer}: {object}");
        }
    }

    #[test]
    fn quantities_are_compared_by_value_only_in_quantity_fields() {
        let owned = owned(&json!({"spec": {"value": "1"}}), &json!({"f:spec": {"f:value": {}}}));
        assert!(owned.differs_from(&json!({"spec": {"value": "1000m"}})));
    }

    #[test]
    fn sets_are_compared_by_value() {
        let owned = owned(
            &json!({"metadata": {"finalizers": ["ours", "theirs"]}}),
            &json!({"f:metadata": {"f:finalizers": {"v:\"ours\"": {}}}}),
        );
        assert!(!owned.differs_from(&json!({"metadata": {"finalizers": ["ours"]}})));
        assert!(owned.differs_from(&json!({"metadata": {"finalizers": ["other"]}})));
    }

    /// The order of an immutable list must not change.
    #[test]
    fn owned_elements_of_a_list_keep_their_order() {
        let names = |all: &[&str]| json!({"env": all.iter().map(|it| json!({"name": it})).collect::<Vec<_>>()});
        let owned = owned(
            &names(&["Z", "theirs", "A", "M"]),
            &json!({"f:env": {
                "k:{\"name\":\"A\"}": {".": {}}, "k:{\"name\":\"M\"}": {".": {}},
                "k:{\"name\":\"Z\"}": {".": {}},
            }}),
        );
        assert_eq!(owned.live, names(&["Z", "A", "M"]));
    }

    #[test]
    fn replicas_owned_by_an_autoscaler_are_detected() {
        let entry = json!({
            "manager": "kube-controller-manager", "operation": "Update", "subresource": "scale",
            "fieldsV1": {"f:spec": {"f:replicas": {}}},
        });
        let entries = [serde_json::from_value(entry).unwrap()];
        let replicas = "/f:spec/f:replicas";
        assert!(owned_by_others(&entries, "oprc-crm", replicas));
        assert!(!owned_by_others(&entries, "oprc-crm", "/f:spec/f:paused"));
        assert!(!owned_by_others(&entries, "kube-controller-manager", replicas));
    }
}
