//! Annotates each object with a short hash of its desired spec.
//!
//! Fields that the API server owns as a whole, such as the containers of a Knative Service, don't
//! show whether a value is a default or was set by an earlier manifest. A changed hash does.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{DesiredObject, SPEC_HASH};

const DIGITS: usize = 16;

/// Metadata is left out, because it is compared field by field; so is the pod template of a Job,
/// which is immutable.
pub(crate) fn add_spec_hash(desired: &mut DesiredObject) {
    let mut digest = Sha256::new();
    let mut object = desired.object.clone();
    if let Some(pods) = object.pointer_mut("/spec/template").filter(|_| desired.runs_once()) {
        pods.take();
    }
    for (name, value) in object.as_object().into_iter().flatten() {
        if name != "metadata" {
            digest.update(name);
            feed(&mut digest, value);
        }
    }
    let mut hash = hex::encode(digest.finalize());
    hash.truncate(DIGITS);
    let annotations = desired.object.pointer_mut("/metadata/annotations");
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.insert(SPEC_HASH.to_owned(), hash.into());
    }
}

/// Fields are sorted by name, so that the hash doesn't depend on how a map is stored.
fn feed(digest: &mut Sha256, value: &Value) {
    match value {
        Value::Object(map) => {
            let mut fields: Vec<_> = map.iter().collect();
            fields.sort_by_key(|(name, _)| name.as_str());
            digest.update(b"{");
            for (name, below) in fields {
                digest.update(Value::from(name.as_str()).to_string());
                feed(digest, below);
            }
            digest.update(b"}");
        }
        Value::Array(items) => {
            digest.update(b"[");
            for item in items {
                feed(digest, item);
                digest.update(b",");
            }
            digest.update(b"]");
        }
        other => digest.update(other.to_string()),
    }
}
