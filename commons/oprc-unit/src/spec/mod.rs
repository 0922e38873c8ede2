//! The unit: one class as it runs in one environment of one cluster. The same types are the
//! `spec` of the ClassRuntime resource, what PM plans and stores, and what CRM validates.
//!
//! Doc comments are the descriptions of the resource's fields. The limits in the attributes give
//! its schema; [`crate::validate`] checks the same limits.

// Derived schemas expose the types from private modules.
#![allow(unreachable_pub)]

mod function;
mod odgm;
mod requirements;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{function::*, odgm::*, requirements::*};

/// Desired state of a class: its functions, its state and its requirements.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("has(self.target_environment) == has(oldSelf.target_environment) && (!has(self.target_environment) || self.target_environment == oldSelf.target_environment)")
        .message("target_environment is immutable"),
    validation = Rule::new("has(self.deployment_unit) == has(oldSelf.deployment_unit) && (!has(self.deployment_unit) || self.deployment_unit.id == oldSelf.deployment_unit.id)")
        .message("deployment_unit.id is immutable"),
    validation = Rule::new("!(has(self.function) && has(self.functions) && size(self.functions) > 0)")
        .message("function and functions are mutually exclusive"),
    validation = Rule::new("!has(self.selected_template) || !has(self.template_hint) || self.selected_template == self.template_hint")
        .message("selected_template and template_hint must be equal")
)]
pub struct UnitSpec {
    /// Identifies the package and class that this unit was deployed from. Set by the package
    /// manager; may be omitted in a ClassRuntime created by a user. Cannot be added or removed
    /// later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment_unit: Option<DeploymentUnit>,

    /// Environment that the class runs in, such as `prod`. Immutable. If omitted, the class belongs
    /// to no environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub target_environment: Option<String>,

    /// Template to use: `k8s_deployment`, `knative`, `unified` or `job`. The name of a profile
    /// (`dev`, `edge`, `full`) selects `k8s_deployment` with that profile's sizes. If omitted, the
    /// template is selected by the requirements.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub selected_template: Option<String>,

    /// Alias of `selected_template`. If both are set, they must be equal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub template_hint: Option<String>,

    /// Functions of the class, at most 64. Must not be combined with `function`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["key".into()]))]
    pub functions: Vec<FunctionSpec>,

    /// The only function of the class, without a key. Must not be combined with `functions`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<SingleFunction>,

    /// State that the objects of the class have. Used with the addon `odgm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<StateSpec>,

    /// Non-functional requirements of the class. They apply to each function that doesn't override
    /// them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nfr_requirements: Option<Requirements>,

    /// Hard limits that apply to each function of the class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<Constraints>,

    /// Enforcement of the requirements. Stored, but not evaluated yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nfr: Option<NfrSpec>,

    /// Addons of the class. The only addon is `odgm`, the data grid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 63)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub addons: Vec<String>,

    /// Resources that the package manager planned for the class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_allocation: Option<ResourceAllocation>,

    /// Configuration of the data grid. Ignored unless `addons` contains `odgm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub odgm_config: Option<OdgmConfig>,

    /// Retention of the data of the class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_retention: Option<DataRetention>,

    /// Keys of functions that don't run in this cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub disabled_functions: Vec<String>,

    /// Keys of functions that run at minimum cost: scaled to zero on Knative, and otherwise as one
    /// instance unless `min_scale` is larger.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub standby_functions: Vec<String>,

    /// Metrics and traces of the functions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<Telemetry>,

    /// How changes are rolled out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,

    /// Stops reconciliation of the objects of the class; status, finalizer and Events are still
    /// written, and deletion works. Defaults to false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

impl UnitSpec {
    /// All functions, each with the path of its field.
    pub fn bodies(&self) -> impl Iterator<Item = (String, &SingleFunction)> {
        let single = self.function.iter().map(|body| ("function".to_owned(), body));
        let many = self.functions.iter().enumerate();
        single.chain(many.map(|(at, it)| (format!("functions[{at}]"), &it.body)))
    }
}

/// Identifies the package and class that a unit was deployed from.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct DeploymentUnit {
    /// Id of the unit, at most 253 characters. Immutable. Units of the package manager have the
    /// form `deployment.class..cluster` or `deployment.class.environment..cluster`.
    #[schemars(length(min = 1, max = 253))]
    pub id: String,
    /// Name of the package.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub package: Option<String>,
    /// Version of the package.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub package_version: Option<String>,
    /// Key of the class within the package. Names of default collections start with it. Defaults to
    /// the name of the ClassRuntime.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub class: Option<String>,
    /// Partition of the class's data that this unit holds. Added to its objects as the labels
    /// `oaas.io/partition` and `oaas.io/partition-replica`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_info: Option<PartitionInfo>,
}

/// Partition of a class's data that a unit holds.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct PartitionInfo {
    /// Number of the partition, starting at 0.
    #[schemars(range(min = 0))]
    pub partition_id: i32,
    /// Number of the replica of the partition, starting at 0.
    #[schemars(range(min = 0))]
    pub replica_id: i32,
}

/// Resources that the package manager planned for a class.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct ResourceAllocation {
    /// Minimum number of data grid nodes, 1 to 99. Defaults to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 99))]
    pub replication_factor: Option<i32>,
}

/// Retention of the data of a class.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct DataRetention {
    /// What happens to the PersistentVolumeClaims when the class is deleted: `retain` keeps them,
    /// `delete` deletes them. Defaults to `retain`.
    #[serde(default)]
    pub on_delete: OnDelete,
    /// Permits changes that discard data of a persistent collection: of its partitions, shard type,
    /// replicas or persistence, or of the number of nodes. Defaults to false; such changes are then
    /// rejected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_data_loss: bool,
}

/// What happens to the PersistentVolumeClaims of a deleted class: `retain` keeps them, `delete`
/// deletes them. Defaults to `retain`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum OnDelete {
    /// Keeps the PersistentVolumeClaims.
    #[default]
    Retain,
    /// Deletes the PersistentVolumeClaims with the class.
    Delete,
}

/// Metrics and traces of the functions.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct Telemetry {
    /// Annotates the functions' pods for scraping by Prometheus. Defaults to true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<bool>,
    /// Path of the functions' metrics. Defaults to `/metrics`. The data grid always uses
    /// `/metrics`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), regex(pattern = "^/"))]
    pub metrics_path: Option<String>,
    /// OTLP endpoint for traces, passed to functions as `OTEL_EXPORTER_OTLP_ENDPOINT`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = "^https?://"))]
    pub otlp_endpoint: Option<String>,
}

/// How changes of a class are rolled out.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct Rollout {
    /// Seconds that the class may take to become Available before it is Degraded, 1 to 86400.
    /// Defaults to CRM's setting `performance.deployment_timeout`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub progress_deadline_seconds: Option<i32>,
    /// Rolls an update that misses its deadline back to the last specification that was Available.
    /// Defaults to false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rollback: bool,
    /// Seconds that replaced objects keep serving after a change of template, 0 to 3600. Defaults
    /// to CRM's setting `templates.drain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600))]
    pub drain_seconds: Option<i32>,
}
