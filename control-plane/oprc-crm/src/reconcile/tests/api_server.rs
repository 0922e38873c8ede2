//! Defaults and immutable fields of the API server.

use serde_json::{Value, json};

use crate::kinds::{DEPLOYMENT, JOB, KNATIVE_SERVICE, Kind, SERVICE, STATEFUL_SET};

/// Sets a default.
fn fill(object: &mut Value, path: &str, default: Value) {
    let (parent, name) = path.rsplit_once('/').unwrap();
    if let Some(map) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
        map.entry(name).or_insert(default);
    }
}

/// An object with the defaults of its kind and canonical quantities.
pub(super) fn with_defaults(kind: &Kind, mut object: Value) -> Value {
    if *kind == SERVICE {
        fill(&mut object, "/spec/clusterIP", json!("10.0.0.1"));
        fill(&mut object, "/spec/sessionAffinity", json!("None"));
        fill(&mut object, "/spec/type", json!("ClusterIP"));
    }
    if *kind == DEPLOYMENT || *kind == STATEFUL_SET || *kind == JOB {
        fill(&mut object, "/spec/replicas", json!(1));
        fill(&mut object, "/spec/template/spec/restartPolicy", json!("Always"));
        fill(&mut object, "/spec/template/spec/dnsPolicy", json!("ClusterFirst"));
        fill(
            &mut object,
            "/spec/template/spec/containers/0/imagePullPolicy",
            json!("IfNotPresent"),
        );
        canonical(&mut object);
        drop_empty(&mut object);
    }
    // Beneath lists that are owned as a whole, too.
    if *kind == STATEFUL_SET {
        fill(&mut object, "/spec/volumeClaimTemplates/0/status", json!({"phase": "Pending"}));
        fill(&mut object, "/spec/volumeClaimTemplates/0/spec/volumeMode", json!("Filesystem"));
    }
    if *kind == KNATIVE_SERVICE {
        fill(&mut object, "/spec/template/spec/timeoutSeconds", json!(300));
        fill(&mut object, "/spec/template/spec/containerConcurrency", json!(0));
        fill(
            &mut object,
            "/spec/template/spec/containers/0/terminationMessagePolicy",
            json!("File"),
        );
    }
    object
}

/// `1000m` is written as `1`.
fn canonical(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, below) in map {
                let whole =
                    below.as_str().and_then(|it| it.strip_suffix("000m")).map(str::to_owned);
                match whole {
                    Some(whole) if name == "cpu" => *below = json!(whole),
                    _ => canonical(below),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(canonical),
        _ => {}
    }
}

/// The API server drops empty values of variables.
fn drop_empty(object: &mut Value) {
    let env = object.pointer_mut("/spec/template/spec/containers/0/env");
    for variable in env.and_then(Value::as_array_mut).into_iter().flatten() {
        variable.as_object_mut().unwrap().retain(|name, value| name != "value" || value != "");
    }
}

/// Why an update is rejected, if it is.
pub(super) fn immutable(kind: &Kind, before: &Value, after: &Value) -> Option<String> {
    let controllers = after["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    if controllers.filter(|it| it["controller"] == true).count() > 1 {
        return Some("Only one reference can have Controller set to true".to_owned());
    }
    let fields: &[&str] = match kind {
        _ if *kind == DEPLOYMENT => &["selector"],
        _ if *kind == STATEFUL_SET => {
            &["selector", "serviceName", "podManagementPolicy", "volumeClaimTemplates"]
        }
        _ if *kind == JOB => &["template", "selector"],
        _ if *kind == SERVICE => &["clusterIP"],
        _ => &[],
    };
    let changed = fields.iter().find(|field| before["spec"][**field] != after["spec"][**field])?;
    Some(format!("spec.{changed}: field is immutable"))
}
