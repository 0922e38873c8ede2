//! Reads a ClassRuntime from what the API server says, however strange its contents: one that
//! can't be read must not keep others from being read.

use std::borrow::Cow;

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};
use kube::Resource;
use oprc_unit::{UnitSpec, Violation};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use crate::{
    crd::ClassRuntime,
    reconcile::{CORRELATION, ObservedClass, render::DEPLOYMENT_ID},
};

/// A ClassRuntime whose contents haven't been looked into: text of any shape and depth, which is
/// read for each class by itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RawClass {
    /// Its metadata.
    pub metadata: ObjectMeta,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spec: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<Box<RawValue>>,
}

impl Resource for RawClass {
    type DynamicType = ();
    type Scope = kube::core::NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        ClassRuntime::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        ClassRuntime::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        ClassRuntime::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        ClassRuntime::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Reads a ClassRuntime.
pub fn parse(class: &RawClass) -> ObservedClass {
    let meta = &class.metadata;
    let annotation = |name: &str| meta.annotations.as_ref().and_then(|all| all.get(name)).cloned();
    let time = |time: &Option<Time>| -> Option<Timestamp> { time.as_ref().map(|time| time.0) };
    let text = class.spec.as_ref().map_or("{}", |spec| spec.get());
    let spec = serde_json::from_str::<Value>(text)
        .map_err(|error| Violation { field: "spec".to_owned(), message: error.to_string() })
        .and_then(read_spec);
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
        spec,
        // One that can't be read is written anew.
        status: class.status.as_ref().and_then(|it| serde_json::from_str(it.get()).ok()),
    }
}

/// Reads a specification; what is wrong is named by its path.
pub fn read_spec(spec: Value) -> Result<UnitSpec, Violation> {
    serde_path_to_error::deserialize(spec).map_err(|error| {
        let path = error.path().to_string();
        let field = if path == "." { "spec".to_owned() } else { format!("spec.{path}") };
        Violation { field, message: error.into_inner().to_string() }
    })
}
