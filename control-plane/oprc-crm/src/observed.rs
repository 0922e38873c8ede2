//! Reads a ClassRuntime from what the API server says, however strange its contents: one that
//! can't be read must not keep others from being read.

use std::borrow::Cow;

use k8s_openapi::jiff::Timestamp;
use kube::{Resource as _, core::DynamicObject};
use serde_json::Value;

use crate::{
    class::Violation,
    crd::{ClassRuntime, ClassRuntimeSpec},
    kinds::Kind,
    reconcile::{CORRELATION, ObservedClass, render::DEPLOYMENT_ID},
};

/// The kind itself.
pub fn class_runtime() -> Kind {
    Kind {
        group: ClassRuntime::group(&()),
        version: ClassRuntime::version(&()),
        kind: ClassRuntime::kind(&()),
        plural: Cow::Owned(ClassRuntime::plural(&()).into_owned()),
    }
}

/// Reads a ClassRuntime.
pub fn parse(object: &DynamicObject) -> ObservedClass {
    let meta = &object.metadata;
    let annotation = |name: &str| meta.annotations.as_ref().and_then(|all| all.get(name)).cloned();
    let spec = object
        .data
        .get("spec")
        .cloned()
        .unwrap_or_else(|| Value::Object(serde_json::Map::default()));
    let time =
        |time: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| -> Option<Timestamp> {
            time.as_ref().map(|time| time.0)
        };
    ObservedClass {
        name: meta.name.clone().unwrap_or_default(),
        namespace: meta.namespace.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        resource_version: meta.resource_version.clone().unwrap_or_default(),
        generation: meta.generation.unwrap_or(0),
        deleting: time(&meta.deletion_timestamp),
        created: time(&meta.creation_timestamp),
        finalizers: meta.finalizers.clone().unwrap_or_default(),
        labels: meta.labels.clone().unwrap_or_default(),
        deployment_id: annotation(DEPLOYMENT_ID),
        correlation_id: annotation(CORRELATION),
        spec: read_spec(spec),
        // One that can't be read is written anew.
        status: object.data.get("status").and_then(|it| serde_json::from_value(it.clone()).ok()),
    }
}

/// Reads a specification; what is wrong is named by its path.
pub fn read_spec(spec: Value) -> Result<ClassRuntimeSpec, Violation> {
    serde_path_to_error::deserialize(spec).map_err(|error| {
        let path = error.path().to_string();
        let field = if path == "." { "spec".to_owned() } else { format!("spec.{path}") };
        Violation { field, message: error.into_inner().to_string() }
    })
}
