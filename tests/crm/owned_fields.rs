//! Fields that CRM owns, and ways to change them.

use std::time::{Duration, Instant};

use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams},
};
use oprc_crm::kinds::{DEPLOYMENT, KNATIVE_SERVICE, Kind, SERVICE, STATEFUL_SET};
use oprc_tests::{TestNamespace, class::objects, fixture::follow};
use serde_json::{Map, Value, json};

use crate::drift::{OTHER_MANAGER, as_other_manager, version};

/// How a field is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// As by `kubectl edit`.
    Edit,
    /// Removed as by `kubectl edit`.
    Remove,
    /// By a server-side apply of that field alone, with force.
    Apply,
}

/// A field that CRM owns.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    /// Steps in the API server's notation, such as `f:spec`.
    pub(crate) path: Vec<String>,
}

impl std::fmt::Display for Leaf {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {} {}", self.kind, self.name, self.path.join(" "))
    }
}

/// The keys of a list element.
fn keys(step: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(step.strip_prefix("k:")?).ok()
}

fn is_element(item: &Value, keys: &Map<String, Value>) -> bool {
    keys.iter().all(|(name, value)| item.get(name) == Some(value))
}

impl Leaf {
    fn of<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.path.iter().try_fold(object, |at, step| match step.strip_prefix("f:") {
            Some(name) => at.get(name),
            None => at.as_array()?.iter().find(|item| is_element(item, &keys(step).unwrap())),
        })
    }

    /// Sets the value, or removes it.
    fn put(&self, object: &mut Value, value: Option<Value>) {
        let (last, above) = self.path.split_last().unwrap();
        let parent = above.iter().fold(object, |at, step| match step.strip_prefix("f:") {
            Some(name) => &mut at[name],
            None => {
                let keys = keys(step).unwrap();
                let items = at.as_array_mut().unwrap();
                items.iter_mut().find(|item| is_element(item, &keys)).unwrap()
            }
        });
        match (last.strip_prefix("f:"), value) {
            (Some(name), Some(value)) => parent[name] = value,
            (Some(name), None) => drop(parent.as_object_mut().unwrap().remove(name)),
            (None, value) => {
                let keys = keys(last).unwrap();
                let items = parent.as_array_mut().unwrap();
                items.retain(|item| !is_element(item, &keys));
                items.extend(value);
            }
        }
    }

    /// An object with only this field, for an apply.
    fn object_with_only(&self, value: Value) -> Value {
        let mut object =
            self.path.iter().rev().fold(value, |below, step| match step.strip_prefix("f:") {
                Some(name) => json!({name: below}),
                None => {
                    let mut item = keys(step).unwrap();
                    item.extend(below.as_object().unwrap().clone());
                    json!([item])
                }
            });
        object["apiVersion"] = json!(self.kind.api_version());
        object["kind"] = json!(self.kind.kind);
        object
    }

    /// Keys identify an element: another value would be another element.
    fn is_key(&self) -> bool {
        let [.., above, last] = self.path.as_slice() else { return false };
        let name = last.strip_prefix("f:");
        keys(above).is_some_and(|keys| name.is_some_and(|name| keys.contains_key(name)))
    }

    /// Whether the API server rejects the change.
    pub(crate) fn is_rejected(&self, way: Way) -> bool {
        let has = |step: &str| self.is_below(step);
        let ends = |steps: &[&str]| {
            let last = self.path.iter().rev().take(steps.len()).rev();
            last.map(String::as_str).eq(steps.iter().copied())
        };
        let workload = self.kind == DEPLOYMENT || self.kind == STATEFUL_SET;
        // Selectors are immutable.
        let found_by = ["app", "owner", "function", "template", "component"].iter().any(|label| {
            ends(&["f:labels", &format!("f:oaas.io/{label}")])
                || ends(&["f:labels", &format!("f:{label}")])
        });
        let immutable = workload && (ends(&["f:spec", "f:selector"]) || has("f:template") && found_by)
            || self.kind == STATEFUL_SET
                && ["f:serviceName", "f:podManagementPolicy", "f:volumeClaimTemplates"]
                    .iter()
                    .any(|field| has(field))
            || ends(&["f:clusterIP"])
            // Only one value is valid.
            || has("f:livenessProbe") && ends(&["f:successThreshold"])
            || has("f:startupProbe") && ends(&["f:successThreshold"])
            || has("f:volumeMounts") && ends(&["f:name"])
            || ends(&["f:networking.knative.dev/visibility"])
            || self.kind == KNATIVE_SERVICE && ends(&["f:automountServiceAccountToken"])
            // Another type requires that the rolling update's parameters are removed.
            || ends(&["f:strategy", "f:type"]);
        let required = [
            "f:image",
            "f:maxReplicas",
            "f:port",
            "f:containerPort",
            "f:whenUnsatisfiable",
            "f:maxSkew",
            "f:fieldRef",
            "f:containers",
        ];
        let required = has("f:scaleTargetRef")
            || required.iter().any(|field| ends(&[field]))
            || has("f:seccompProfile") && ends(&["f:type"])
            // Several ports need names.
            || self.kind == SERVICE && has("f:ports") && ends(&["f:name"]);
        immutable || way == Way::Remove && required
    }

    /// Ways to change it. An empty map can only be removed: values in it belong to others. The
    /// owner reference can't be removed, because the object wouldn't be a child any more.
    pub(crate) fn ways(&self, object: &DynamicObject) -> Vec<Way> {
        let object = serde_json::to_value(object).unwrap();
        let empty = self.of(&object).and_then(Value::as_object).is_some_and(Map::is_empty);
        if empty {
            vec![Way::Remove]
        } else if self.is_owner() {
            vec![Way::Edit, Way::Apply]
        } else {
            vec![Way::Edit, Way::Remove, Way::Apply]
        }
    }

    pub(crate) fn is_below(&self, above: &str) -> bool {
        self.path.iter().any(|step| step == above)
    }

    /// Whether it is part of the owner reference.
    pub(crate) fn is_owner(&self) -> bool {
        self.is_below("f:ownerReferences")
    }
}

fn collect(set: &Value, leaf: &Leaf, into: &mut Vec<Leaf>) {
    let below = set.as_object().into_iter().flatten().filter(|(key, _)| *key != ".");
    let mut any = false;
    for (step, set) in below {
        any = true;
        let mut deeper = leaf.clone();
        deeper.path.push(step.clone());
        collect(set, &deeper, into);
    }
    if !any {
        into.push(leaf.clone());
    }
}

/// All fields of an object that CRM owns: none if it isn't a child of a class.
pub(crate) fn owned(kind: &Kind, object: &DynamicObject) -> Vec<Leaf> {
    let own = object.managed_fields().iter().find(|entry| {
        entry.manager.as_deref() == Some("oprc-crm") && entry.operation.as_deref() == Some("Apply")
    });
    let Some(own) = own else { return Vec::new() };
    let fields = &own.fields_v1.as_ref().unwrap().0;
    let whole = Leaf { kind: kind.clone(), name: object.name_any(), path: Vec::new() };
    let mut all = Vec::new();
    collect(fields, &whole, &mut all);
    all.retain(|leaf| !leaf.is_key());
    all
}

/// Candidates of the same type; the API server may accept one.
fn other_values(leaf: &Leaf, value: &Value) -> Vec<Value> {
    match value {
        // Invalid quantities can't be decoded.
        Value::String(_) if leaf.path.iter().any(|step| step == "f:resources") => {
            vec![json!("11m"), json!("17Mi")]
        }
        Value::String(text) => {
            let words = [
                "26%",
                "IfNotPresent",
                "Unconfined",
                "HTTPS",
                "Recreate",
                "RollingUpdate",
                "Min",
                "Disabled",
                "2",
                "Retain",
                "Delete",
                "UDP",
                "DoNotSchedule",
                "ScheduleAnyway",
                "AlwaysAllow",
                "IfHealthyBudget",
            ];
            let longer = format!("{text}x");
            std::iter::once(longer.as_str()).chain(words).map(|word| json!(word)).collect()
        }
        Value::Number(number) => {
            let number = number.as_i64().unwrap();
            vec![json!(number + 1), json!((number - 1).max(0))]
        }
        Value::Bool(flag) => vec![json!(!flag)],
        Value::Array(items) => {
            let of_first = match items.first() {
                Some(first @ Value::Object(_)) => other_values(leaf, first),
                first => first.map(|_| json!("NET_RAW")).into_iter().collect(),
            };
            let with = |value: Value| match value {
                Value::Object(_) => {
                    let rest = items.iter().skip(1).cloned();
                    std::iter::once(value).chain(rest).collect()
                }
                more => items.iter().cloned().chain([more]).collect(),
            };
            of_first.into_iter().map(with).chain([json!([])]).collect()
        }
        Value::Object(map) => {
            let mut all = Vec::new();
            for (field, value) in map {
                let values = match (field.as_str(), value) {
                    ("fieldPath", _) => vec![json!("metadata.namespace")],
                    (_, Value::Null) => Vec::new(),
                    (_, value) => other_values(leaf, value),
                };
                for value in values {
                    let mut changed = map.clone();
                    changed.insert(field.clone(), value);
                    all.push(Value::Object(changed));
                }
            }
            all
        }
        Value::Null => panic!("{leaf} is null"),
    }
}

/// Whether to retry: a conflict with the object's controller, or an unavailable webhook.
fn is_transient(status: &kube::core::Status) -> bool {
    status.code == 409 || status.code == 500 && status.message.contains("failed calling webhook")
}

/// Whether the change is invalid. Invalid quantities are reported as an internal error.
fn is_rejection(status: &kube::core::Status) -> bool {
    matches!(status.code, 400 | 422)
        || status.code == 500 && status.message.contains("to proper version")
}

/// Changes a field, and returns the changed object and the time of the response: webhooks don't
/// count as CRM's time.
async fn change(
    api: &Api<DynamicObject>,
    leaf: &Leaf,
    way: Way,
    value: Option<&Value>,
) -> Result<(DynamicObject, Instant), kube::Error> {
    loop {
        let changed = if way == Way::Apply {
            let object = leaf.object_with_only(value.unwrap().clone());
            let params = PatchParams::apply(OTHER_MANAGER).force();
            api.patch(&leaf.name, &params, &Patch::Apply(&object)).await
        } else {
            let mut object = serde_json::to_value(api.get(&leaf.name).await?).unwrap();
            leaf.put(&mut object, value.cloned());
            let object = serde_json::from_value(object).unwrap();
            api.replace(&leaf.name, &as_other_manager(), &object).await
        };
        match changed {
            Err(kube::Error::Api(status)) if is_transient(&status) => {}
            done => return done.map(|changed| (changed, Instant::now())),
        }
    }
}

/// The outcome of a change.
pub(crate) enum Outcome {
    Restored(Duration),
    /// CRM didn't restore it.
    Kept(String),
    /// The API server rejects the change.
    Rejected,
    /// The change has no effect.
    NoEffect,
}

/// Restores an object, so that other fields can be tested.
async fn restore(api: &Api<DynamicObject>, name: &str, before: &Value) {
    let mut object: DynamicObject = serde_json::from_value(before.clone()).unwrap();
    object.metadata.resource_version = None;
    object.metadata.managed_fields = None;
    api.replace(name, &as_other_manager(), &object).await.unwrap();
}

pub(crate) async fn change_and_wait(ns: &TestNamespace, leaf: &Leaf, way: Way) -> Outcome {
    let api = objects(ns, &leaf.kind);
    let before = serde_json::to_value(api.get(&leaf.name).await.unwrap()).unwrap();
    let own = leaf.of(&before).unwrap_or_else(|| panic!("{leaf} isn't there"));
    let values = match way {
        Way::Remove => vec![None],
        Way::Edit | Way::Apply => other_values(leaf, own).into_iter().map(Some).collect(),
    };
    let mut rejected = false;
    for value in values {
        let (changed, then) = match change(&api, leaf, way, value.as_ref()).await {
            Ok(changed) => changed,
            Err(kube::Error::Api(status)) if is_rejection(&status) => {
                rejected = true;
                continue;
            }
            Err(error) => panic!("{leaf} {way:?}: {error}"),
        };
        let since = version(&changed);
        if leaf.of(&serde_json::to_value(changed).unwrap()) == Some(own) {
            continue;
        }
        let back = |object: Option<&DynamicObject>| {
            let object = object.map(|object| serde_json::to_value(object).unwrap());
            object.is_some_and(|object| leaf.of(&object) == Some(own))
        };
        let what = format!("{leaf} ({way:?}, {value:?}) to be {own}");
        return match follow(&api, &leaf.name, &since, &what, back).await {
            Ok(back) => Outcome::Restored(back.duration_since(then)),
            Err(error) => {
                restore(&api, &leaf.name, &before).await;
                Outcome::Kept(error.to_string())
            }
        };
    }
    if rejected { Outcome::Rejected } else { Outcome::NoEffect }
}
