//! The unit: one class as it runs in one environment of one cluster. The same types are the
//! `spec` of the ClassRuntime resource, what PM plans and stores, and what CRM validates.
//!
//! Fields are snake_case, apart from Kubernetes' own words. The limits in the attributes give the
//! schema of the resource; [`crate::validate`] checks the same limits.

// The derived schemas repeat the types in places that can't be reached.
#![allow(unreachable_pub)]

mod function;
mod odgm;
mod requirements;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{function::*, odgm::*, requirements::*};

/// One class that runs: its functions, its state and what is required of it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("has(self.target_environment) == has(oldSelf.target_environment) && (!has(self.target_environment) || self.target_environment == oldSelf.target_environment)")
        .message("target_environment can't be changed once the class is made"),
    validation = Rule::new("has(self.deployment_unit) == has(oldSelf.deployment_unit) && (!has(self.deployment_unit) || self.deployment_unit.id == oldSelf.deployment_unit.id)")
        .message("the unit's id can't be changed"),
    validation = Rule::new("!(has(self.function) && has(self.functions) && size(self.functions) > 0)")
        .message("give either function or functions, not both"),
    validation = Rule::new("!has(self.selected_template) || !has(self.template_hint) || self.selected_template == self.template_hint")
        .message("selected_template and template_hint say the same thing: give one of them")
)]
pub struct UnitSpec {
    /// Where this class comes from: its unit, package and class. A class made by hand needs none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment_unit: Option<DeploymentUnit>,

    /// The environment of this cluster that the class is for. It can't be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub target_environment: Option<String>,

    /// The template to use: `k8s_deployment`, `knative`, `unified` or `job`; a profile's name
    /// (`dev`, `edge`, `full`) means `k8s_deployment` with that profile's sizes. Left out, the
    /// requirements decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub selected_template: Option<String>,

    /// Says the same as `selected_template`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub template_hint: Option<String>,

    /// The functions of the class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["key".into()]))]
    pub functions: Vec<FunctionSpec>,

    /// The only function of a class that has one, in place of `functions`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<SingleFunction>,

    /// What the class keeps, and how.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<StateSpec>,

    /// What is required of the class as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nfr_requirements: Option<Requirements>,

    /// What must never be exceeded by any function of the class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<Constraints>,

    /// How requirements are watched and enforced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nfr: Option<NfrSpec>,

    /// Addons, such as `odgm`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 63)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub addons: Vec<String>,

    /// What the package manager has allotted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_allocation: Option<ResourceAllocation>,

    /// The data grid of the class, where `addons` has `odgm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub odgm_config: Option<OdgmConfig>,

    /// What becomes of the class's data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_retention: Option<DataRetention>,

    /// Keys of functions that aren't to run here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub disabled_functions: Vec<String>,

    /// Keys of functions that are to run at the least cost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub standby_functions: Vec<String>,

    /// What the class tells of itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<Telemetry>,

    /// How changes are brought about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,

    /// Nothing of the class is changed for as long as this is set.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

impl UnitSpec {
    /// All functions, each with the field that it stands in.
    pub fn bodies(&self) -> impl Iterator<Item = (String, &SingleFunction)> {
        let single = self.function.iter().map(|body| ("function".to_owned(), body));
        let many = self.functions.iter().enumerate();
        single.chain(many.map(|(at, it)| (format!("functions[{at}]"), &it.body)))
    }
}

/// Where a class comes from.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct DeploymentUnit {
    /// The id of the unit, which stays the same over all updates.
    #[schemars(length(min = 1, max = 253))]
    pub id: String,
    /// The package.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub package: Option<String>,
    /// The package's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub package_version: Option<String>,
    /// The class within the package.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub class: Option<String>,
    /// The part of the class's data that this unit has. Its objects have it as labels,
    /// `oaas.io/partition` and `oaas.io/partition-replica`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_info: Option<PartitionInfo>,
}

/// The part of a class's data that a unit has.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct PartitionInfo {
    /// The partition.
    #[schemars(range(min = 0))]
    pub partition_id: i32,
    /// Which copy of the partition.
    #[schemars(range(min = 0))]
    pub replica_id: i32,
}

/// What the package manager has allotted to a class.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct ResourceAllocation {
    /// How many copies of the data there are to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 99))]
    pub replication_factor: Option<i32>,
}

/// What becomes of a class's data.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct DataRetention {
    /// What becomes of volume claims when the class is deleted.
    #[serde(default)]
    pub on_delete: OnDelete,
    /// Whether a persistent collection may be changed at the price of its data: its partitions,
    /// shard type, copies or persistence, or fewer nodes to keep it on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_data_loss: bool,
}

/// What becomes of volume claims when their class is deleted.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum OnDelete {
    /// They stay.
    #[default]
    Retain,
    /// They go with the class.
    Delete,
}

/// What a class tells of itself.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct Telemetry {
    /// Whether Prometheus is told to scrape the functions (yes, unless said otherwise).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<bool>,
    /// Where the functions' metrics are, `/metrics` unless said otherwise; those of the data
    /// grid always are.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), regex(pattern = "^/"))]
    pub metrics_path: Option<String>,
    /// Where traces are to be sent, given to functions as `OTEL_EXPORTER_OTLP_ENDPOINT`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = "^https?://"))]
    pub otlp_endpoint: Option<String>,
}

/// How changes are brought about.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct Rollout {
    /// How long the class may take to become Available before it counts as Degraded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub progress_deadline_seconds: Option<i32>,
    /// Whether an update that misses its deadline goes back to what was Available last.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rollback: bool,
    /// How long what a change of template replaces goes on answering after the new address is
    /// told.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600))]
    pub drain_seconds: Option<i32>,
}
