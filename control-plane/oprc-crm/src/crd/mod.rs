//! The `ClassRuntime` resource: one class in one environment of one cluster.

// Derived schemas expose the types from private modules.
#![allow(unreachable_pub)]

mod status;
mod transitions;

use kube::CustomResource;
use oprc_unit::UnitSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{status::*, transitions::*};

/// The API group of all resources of this project.
pub const GROUP: &str = "oaas.io";

#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "oaas.io",
    version = "v1alpha1",
    kind = "ClassRuntime",
    plural = "classruntimes",
    singular = "classruntime",
    shortname = "crt",
    category = "oaas",
    namespaced,
    status = "ClassRuntimeStatus",
    derive = "PartialEq",
    doc = "ClassRuntime is a class of the OaaS (Object-as-a-Service) platform that runs in one environment of this cluster. CRM (Class Runtime Manager) reconciles it.",
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.ready"}"#,
    printcolumn = r#"{"name":"Template","type":"string","jsonPath":".status.selection.template"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Environment","type":"string","jsonPath":".spec.target_environment","priority":1}"#,
    printcolumn = r#"{"name":"Package","type":"string","jsonPath":".spec.deployment_unit.package","priority":1}"#,
    printcolumn = r#"{"name":"Message","type":"string","jsonPath":".status.message","priority":1}"#
)]
#[serde(transparent)]
pub struct ClassRuntimeSpec(pub UnitSpec);
