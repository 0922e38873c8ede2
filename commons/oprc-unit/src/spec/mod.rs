//! The unit: one class as it runs in one environment of one cluster. The same types are the
//! `spec` of the ClassRuntime resource, what PM plans and stores, and what CRM validates.
//!
//! Doc comments are the descriptions of the resource's fields. The attributes give the limits of
//! its schema, which [`crate::validate`] checks, too.

// Derived schemas expose the types from private modules.
#![allow(unreachable_pub)]

/// Declares types of the unit. A field marked with `?` is omitted where it has its default.
macro_rules! unit_types {
    ($(
        $(#[$($meta:tt)*])*
        $name:ident {
            // `$never` matches nothing: it lets the attribute below repeat with the mark.
            $($(#[$($attribute:tt)*])* $field:ident $(? $(@ $never:tt)?)?: $type:ty,)*
        }
    )*) => {$(
        #[derive(kube::KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
        $(#[$($meta)*])*
        pub struct $name {
            $(
                $(#[$($attribute)*])*
                $(#[serde(default, skip_serializing_if = "crate::spec::is_default")] $($never)?)?
                pub $field: $type,
            )*
        }
    )*};
}

mod function;
mod macros;
mod odgm;
mod requirements;

use oprc_models::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{function::*, macros::*, odgm::*, requirements::*};

unit_types! {
    /// Desired state of a class: its functions, its state and its requirements.
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
    UnitSpec {
        /// Identifies the package and class that this unit was deployed from. Set by the package
        /// manager; may be omitted in a ClassRuntime created by a user. Cannot be added or removed
        /// later.
        deployment_unit?: Option<DeploymentUnit>,

        /// Environment that the class runs in, such as `prod`. Immutable. If omitted, the class has
        /// no environment.
        #[schemars(length(min = 1, max = limits::LABEL))]
        target_environment?: Option<String>,

        /// Requested template, such as `k8s_deployment` or `knative`. The name of a profile (`dev`,
        /// `edge`, `full`) is also accepted and requests `k8s_deployment` with that profile's sizes.
        /// Binding: a class that the template cannot run is rejected. If omitted, CRM selects a
        /// template by the requirements; the selected one is in `status.selection`.
        #[schemars(length(min = 1, max = limits::LABEL))]
        selected_template?: Option<String>,

        /// Alias of `selected_template`, equally binding. If both are set, they must be equal.
        #[schemars(length(min = 1, max = limits::LABEL))]
        template_hint?: Option<String>,

        /// Functions of the class, at most 64. Must not be combined with `function`.
        #[schemars(length(max = limits::FUNCTIONS))]
        #[x_kube(merge_strategy = ListMerge::Map(vec!["key".into()]))]
        functions?: Vec<FunctionSpec>,

        /// The only function of the class, without a key. Must not be combined with `functions`.
        function?: Option<SingleFunction>,

        /// State that the objects of the class have. Used with the addon `odgm`.
        state?: Option<StateSpec>,

        /// Classes that objects of this class refer to, at most 512. Used with the addon `odgm`.
        #[schemars(length(max = limits::MEMBERS))]
        #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
        references?: Vec<ClassReference>,

        /// Non-functional requirements of the class. They apply to each function that doesn't
        /// override them.
        nfr_requirements?: Option<Requirements>,

        /// Hard limits that apply to each function of the class.
        constraints?: Option<Constraints>,

        /// Whether a proxy runs as a sidecar in front of functions that run as Deployments: `auto` in
        /// front of functions with requirements or constraints, `always` in front of all, `never` in
        /// front of none. It measures calls and enforces `max_concurrency` and `timeout_ms`. `never`
        /// can't be combined with `max_concurrency`. Defaults to `auto`.
        proxy?: Option<ProxyMode>,

        /// Enforcement of the requirements.
        nfr?: Option<NfrSpec>,

        /// Addons of the class. The only addon is `odgm`, the data grid.
        #[schemars(length(max = 16), inner(length(min = 1, max = limits::LABEL)))]
        #[x_kube(merge_strategy = ListMerge::Set)]
        addons?: Vec<String>,

        /// Resources that the package manager planned for the class.
        resource_allocation?: Option<ResourceAllocation>,

        /// Configuration of the data grid. Ignored unless `addons` contains `odgm`.
        odgm_config?: Option<OdgmConfig>,

        /// Retention of the data of the class.
        data_retention?: Option<DataRetention>,

        /// Keys of functions that don't run in this cluster.
        #[schemars(length(max = limits::FUNCTIONS), inner(length(min = 1, max = limits::NAME)))]
        #[x_kube(merge_strategy = ListMerge::Set)]
        disabled_functions?: Vec<String>,

        /// Keys of functions that run at minimum cost: the selection prefers templates that scale to
        /// zero, the required availability doesn't raise the number of instances, and the minimum is
        /// 0 on Knative and 1 as a Deployment, unless `min_scale` of the Deployment is larger.
        #[schemars(length(max = limits::FUNCTIONS), inner(length(min = 1, max = limits::NAME)))]
        #[x_kube(merge_strategy = ListMerge::Set)]
        standby_functions?: Vec<String>,

        /// Metrics and traces of the functions.
        telemetry?: Option<Telemetry>,

        /// How changes are rolled out.
        rollout?: Option<Rollout>,

        /// Stops reconciliation of the objects of the class; status, finalizer and Events are still
        /// written, and deletion works. Defaults to false.
        paused?: bool,
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl UnitSpec {
    /// All functions, each with the path of its field.
    pub fn bodies(&self) -> impl Iterator<Item = (String, &SingleFunction)> {
        let single = self.function.iter().map(|body| ("function".to_owned(), body));
        let many = self.functions.iter().enumerate();
        single.chain(many.map(|(at, it)| (format!("functions[{at}]"), &it.body)))
    }
}

unit_types! {
    /// Identifies the package and class that a unit was deployed from.
    DeploymentUnit {
        /// Id of the unit, at most 253 characters. Immutable. Units of the package manager have the
        /// form `deployment.class..cluster` or `deployment.class.environment..cluster`.
        #[schemars(length(min = 1, max = limits::NAME))]
        id: String,
        /// Name of the package.
        #[schemars(length(min = 1, max = limits::NAME))]
        package?: Option<String>,
        /// Version of the package.
        #[schemars(length(min = 1, max = limits::VERSION))]
        package_version?: Option<String>,
        /// Key of the class within the package. Names of default collections start with it.
        /// Defaults to the name of the ClassRuntime.
        #[schemars(length(min = 1, max = limits::NAME))]
        class?: Option<String>,
        /// Partition of the class's data that this unit holds. Added to its objects as the labels
        /// `oaas.io/partition` and `oaas.io/partition-replica`.
        partition_info?: Option<PartitionInfo>,
    }

    /// Partition of a class's data that a unit holds.
    PartitionInfo {
        /// Number of the partition, starting at 0.
        #[schemars(range(min = 0))]
        partition_id: i32,
        /// Number of the replica of the partition, starting at 0.
        #[schemars(range(min = 0))]
        replica_id: i32,
    }

    /// Resources that the package manager planned for a class.
    ResourceAllocation {
        /// Minimum number of grid nodes (pods of the data grid), 1 to 99. Not the number of replicas
        /// of a partition, which is `replica_count`. If omitted, it follows from the required
        /// availability.
        #[schemars(range(min = limits::REPLICAS.min, max = limits::REPLICAS.max))]
        replication_factor?: Option<i32>,
    }

    /// Retention of the data of a class.
    DataRetention {
        /// What happens to the PersistentVolumeClaims when the class is deleted: `retain` keeps
        /// them, `delete` deletes them. Defaults to `retain`.
        #[serde(default)]
        on_delete: OnDelete,
        /// Permits changes to partition count, shard type, replica count or persistence, or fewer
        /// grid nodes, even if data of a persistent collection is lost. Defaults to false; such
        /// changes are then rejected.
        allow_data_loss?: bool,
    }
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

unit_types! {
    /// Metrics and traces of the functions.
    Telemetry {
        /// Annotates the functions' pods for scraping by Prometheus. Defaults to true.
        metrics?: Option<bool>,
        /// Path of the functions' metrics. Defaults to `/metrics`. The data grid always uses
        /// `/metrics`.
        #[schemars(length(min = 1, max = limits::METRICS_PATH), regex(pattern = "^/"))]
        metrics_path?: Option<String>,
        /// OTLP endpoint for traces, passed to functions as `OTEL_EXPORTER_OTLP_ENDPOINT`.
        #[schemars(length(min = 1, max = limits::OTLP_ENDPOINT), regex(pattern = "^https?://"))]
        otlp_endpoint?: Option<String>,
    }

    /// How changes of a class are rolled out.
    Rollout {
        /// Seconds that the class may take to become Available before it is Degraded, 1 to 86400.
        /// Defaults to CRM's setting `performance.deployment_timeout`: 600 (profile `dev`), 300
        /// (`edge`) or 180 (`full`) unless configured.
        #[schemars(range(min = limits::PROGRESS_DEADLINE_SECONDS.min, max = limits::PROGRESS_DEADLINE_SECONDS.max))]
        progress_deadline_seconds?: Option<i32>,
        /// Rolls an update that misses its deadline back to the last specification that was
        /// Available. Defaults to false.
        rollback?: bool,
        /// Seconds that replaced objects keep serving after a change of template, 0 to 3600.
        /// Defaults to CRM's setting `templates.drain`, 10 unless configured.
        #[schemars(range(min = limits::DRAIN_SECONDS.min, max = limits::DRAIN_SECONDS.max))]
        drain_seconds?: Option<i32>,
    }
}
