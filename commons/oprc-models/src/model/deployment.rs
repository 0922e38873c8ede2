//! Deployments: the classes to run, their targets and options.

use super::{Grid, VersionRange};
use crate::macros::{models, string_enums};

models! {
    /// A deployment of classes of one package. Each class becomes one deployment unit for each
    /// target environment of each target cluster.
    OClassDeployment {
        /// Key of the deployment; part of the unit ids.
        key | "_key": String,
        /// Name of the package. Optional in a deployment that a package contains.
        package | "packageName": Option<String>,
        /// Allowed versions; the highest published one is deployed. A deployment that a package
        /// contains uses the version of that package.
        version: Option<VersionRange>,
        /// The class to deploy; use `classes` for several.
        class | "cls" | "clsKey": Option<String>,
        /// The classes to deploy.
        classes: Vec<String>,
        /// Target environments. Without `targetEnvs` and `members`, PM uses its default environment,
        /// if one is configured. Sent to CRM as `target_environment`.
        target_envs: Vec<String>,
        /// Target clusters, by their names in PM; by default PM chooses.
        target_clusters: Vec<String>,
        /// Kubernetes namespace; the default is that of CRM.
        namespace: Option<String>,
        /// Number of partitions of the data. Sent to CRM as `odgm_config.partition_count`.
        partition_count: Option<i32>,
        /// Number of replicas of each partition; by default derived from the required availability.
        /// Sent to CRM as `odgm_config.replica_count` and `resource_allocation.replication_factor`.
        replica_count: Option<i32>,
        /// Replication protocol of shards. Sent to CRM as `odgm_config.shard_type`.
        shard_type: Option<ShardType>,
        /// Settings for individual targets. If set, only these targets are used, and several members
        /// divide the partitions of the data among them.
        members: Vec<Member>,
        /// Shards of each member. PM assigns those that are not listed. Sent to CRM as
        /// `odgm_config.shard_assignments`.
        assignments: Vec<Assignment>,
        /// Workload template for all members without `forceTemplate`. Sent to CRM as
        /// `selected_template`.
        template: Option<String>,
        /// Handling of clusters that cannot be updated. BEST_EFFORT (the default): the other clusters
        /// are updated, and these as soon as possible. ALL_OR_NOTHING: no cluster is updated.
        policy: Option<Policy>,
        /// Whether a failed update is rolled back: by PM for the units of an ALL_OR_NOTHING
        /// deployment (default true), and by CRM within a cluster (`rollout.rollback`, default
        /// false).
        rollback_on_failure: Option<bool>,
        /// Configuration of the data grid. Sent to CRM as `odgm_config` and `data_retention`.
        odgm: Option<Grid>,
        /// Handling of requirements that are not met. Sent to CRM as `nfr.enforcement`.
        enforcement: Option<Enforcement>,
        /// Rollout and telemetry options.
        options: Option<Options>,
    }
    => rejected {
        "status" => "it is set by PM",
        "_rev" => "PM counts revisions",
        "condition" => "it is set by PM",
        "createdAt" => "it is set by PM",
        "updatedAt" => "it is set by PM",
        "apiVersion" => "package files have no API version; use kind",
    }
}

impl OClassDeployment {
    /// The classes of both `class` and `classes`.
    pub fn classes(&self) -> impl Iterator<Item = &str> {
        self.class.iter().chain(&self.classes).map(String::as_str)
    }
}

models! {
    /// Settings for one target.
    Member {
        /// Id of the member, referenced by `assignments`.
        id: i32,
        /// Environment; optional if `targetEnvs` has only one.
        env: Option<String>,
        /// Cluster; by default PM chooses.
        cluster: Option<String>,
        /// Maximum number of shards that PM assigns to the member; -1 means no limit.
        max_shards: Option<i32>,
        /// Whether PM assigns every partition to the member; at most one member can have it.
        all_partitions: bool,
        /// URL of the member's data grid for clients elsewhere, such as `http://grid.east.example:8083`.
        /// The data grids of other members return it for objects of this member.
        grid_url: Option<String>,
        /// Functions that do not run on the member. Sent to CRM as `disabled_functions`.
        disabled_fn: Vec<String>,
        /// Functions that run with minimal resources on the member. Sent to CRM as
        /// `standby_functions`.
        standby_fn: Vec<String>,
        /// Workload template for the member. Sent to CRM as `selected_template`.
        force_template: Option<String>,
    }

    /// The member that stores a set of shards.
    Assignment {
        /// Id of the member, as in `owners`.
        primary: Option<i32>,
        /// Id of the member. Plans with several owners are rejected: replicas of a partition are in the
        /// cluster of its member.
        owners: Vec<i32>,
        /// Shard numbers, from 0.
        shard_ids: Vec<i32>,
    }
}

string_enums! {
    /// Replication protocol of shards.
    ShardType {
        /// Eventual replication.
        #[default]
        Basic = "BASIC",
        /// Raft consensus.
        Raft = "RAFT",
        /// Merkle search trees.
        Mst = "MST",
    }

    /// Handling of clusters that cannot be updated.
    Policy {
        /// The other clusters are updated, and these as soon as possible.
        #[default]
        BestEffort = "BEST_EFFORT",
        /// No cluster is updated.
        AllOrNothing = "ALL_OR_NOTHING",
    }
}

models! {
    /// Handling of requirements that are not met.
    Enforcement {
        /// OFF: requirements are not monitored. OBSERVE (the default): compliance and recommendations
        /// are reported. ENFORCE: recommendations are applied if `features.nfr_enforcement` of CRM is
        /// on.
        mode: Option<EnforcementMode>,
        /// What enforcement may change; by default all.
        dimensions: Vec<Dimension>,
    }
}

string_enums! {
    /// Whether requirements that are not met lead to changes.
    EnforcementMode {
        /// Requirements are not monitored.
        Off = "OFF",
        /// Compliance and recommendations are reported.
        #[default]
        Observe = "OBSERVE",
        /// Recommendations are applied, within safeguards, if `features.nfr_enforcement` of CRM is on.
        Enforce = "ENFORCE",
    }

    /// What enforcement may change.
    Dimension {
        /// Number of instances.
        #[default]
        Replicas = "REPLICAS",
        /// Memory of each instance.
        Memory = "MEMORY",
        /// CPU of each instance.
        Cpu = "CPU",
        /// Template of each function of a class with template `unified`.
        Template = "TEMPLATE",
    }
}

models! {
    /// Rollout and telemetry options. Sent to CRM as `rollout`, `telemetry` and `paused`.
    Options {
        /// Seconds until a class that is not Available becomes Degraded.
        progress_deadline_seconds: Option<i32>,
        /// Seconds for which the old workload keeps serving after a change of template.
        drain_seconds: Option<i32>,
        /// Suspends reconciliation.
        paused: bool,
        /// Adds Prometheus scrape annotations to the functions; the default is true.
        metrics: Option<bool>,
        /// HTTP path of the functions' metrics.
        metrics_path: Option<String>,
        /// URL of the OTLP endpoint that receives traces.
        otlp_endpoint: Option<String>,
    }
}
