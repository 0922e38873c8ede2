//! Marks each object with a short digest of what is wanted of it.
//!
//! What the API server owns as a whole, such as the containers of a Knative Service, doesn't tell
//! a default from something that we said once and say no more. The mark does: another wish has
//! another mark.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{Wanted, labels::WANTED};

/// How many digits a mark has.
const DIGITS: usize = 16;

/// Marks an object. Metadata is compared field by field, and has no part in its mark; nor have the
/// pods of a run, which stay as they were made whatever is wanted later.
pub(super) fn stamp(wanted: &mut Wanted) {
    let mut digest = Sha256::new();
    let mut object = wanted.object.clone();
    if let Some(pods) = object.pointer_mut("/spec/template").filter(|_| wanted.runs_once) {
        pods.take();
    }
    for (name, value) in object.as_object().into_iter().flatten() {
        if name != "metadata" {
            digest.update(name);
            feed(&mut digest, value);
        }
    }
    let mut mark = hex::encode(digest.finalize());
    mark.truncate(DIGITS);
    let annotations = wanted.object.pointer_mut("/metadata/annotations");
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.insert(WANTED.to_owned(), mark.into());
    }
}

/// Fields in the order of their names, so that a mark doesn't depend on how maps are kept.
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
