//! Deployments: which classes run where, and how.

use super::{Grid, VersionRange};
use crate::macros::{model, words};

model! {
    /// A deployment of classes of one package. Each class becomes one unit in each environment of
    /// each cluster that it is for.
    OClassDeployment {
        /// What it is known by; units are named after it.
        key | "_key": String,
        /// The package; within a package, that one unless said otherwise.
        package | "packageName": Option<String>,
        /// The versions that will do: the newest of them, or within a package its own.
        version: Option<VersionRange>,
        /// The class, where there is one.
        class | "cls" | "clsKey": Option<String>,
        /// The classes, where there are several.
        classes: Vec<String>,
        /// The environments. Go into `target_environment`. PM's default one where neither this nor
        /// members are given.
        target_envs: Vec<String>,
        /// The clusters, by the names that PM knows them by; left out, PM chooses.
        target_clusters: Vec<String>,
        /// The namespace, CRM's own default unless said otherwise. Goes into the request.
        namespace: Option<String>,
        /// In how many parts data is split. Goes into `odgm_config.partition_count`.
        partition_count: Option<i32>,
        /// How many copies of each part there are; left out, availability says so. Goes into
        /// `odgm_config.replica_count` and `resource_allocation.replication_factor`.
        replica_count: Option<i32>,
        /// How copies are kept the same. Goes into `odgm_config.shard_type`.
        shard_type: Option<ShardType>,
        /// What differs from place to place. Where there are any, only these places are used.
        members: Vec<Member>,
        /// Which members have which shards; left out, PM assigns them. Go into
        /// `odgm_config.shard_assignments` of the units of those members.
        assignments: Vec<Assignment>,
        /// The template for all members that force none. Goes into `selected_template`.
        template: Option<String>,
        /// What is done about clusters that can't be brought to it.
        policy: Option<Policy>,
        /// Whether what was changed is undone when it fails: units of ALL_OR_NOTHING by PM, yes
        /// unless said otherwise; within a cluster, by CRM (`rollout.rollback`), no unless said
        /// otherwise.
        rollback_on_failure: Option<bool>,
        /// How the data grid is made. Goes into `odgm_config` and `data_retention`.
        odgm: Option<Grid>,
        /// What is done about requirements that aren't met. Goes into `nfr.enforcement`.
        enforcement: Option<Enforcement>,
        /// How changes are brought about, and what classes tell of themselves.
        options: Option<Options>,
    }
    refused {
        "status" => "PM tells it, nobody sets it",
        "_rev" => "PM counts revisions by itself",
        "condition" => "PM tells it, nobody sets it",
        "createdAt" => "PM notes it",
        "updatedAt" => "PM notes it",
        "apiVersion" => "package files have none; kind tells what they are",
    }
}

impl OClassDeployment {
    /// The classes, however they were given.
    pub fn classes(&self) -> impl Iterator<Item = &str> {
        self.class.iter().chain(&self.classes).map(String::as_str)
    }
}

model! {
    /// What differs in one place.
    Member {
        /// The number that assignments know it by.
        id: i32,
        /// The environment, the only one of `targetEnvs` unless said otherwise.
        env: Option<String>,
        /// The cluster; left out, PM chooses.
        cluster: Option<String>,
        /// How many shards it has at most; -1 is any number. PM heeds it when it assigns shards.
        max_shards: Option<i32>,
        /// Whether it has a copy of every part. PM heeds it when it assigns shards.
        all_partitions: bool,
        /// Functions that don't run there. Go into `disabled_functions`.
        disabled_fn: Vec<String>,
        /// Functions that run there at the least cost. Go into `standby_functions`.
        standby_fn: Vec<String>,
        /// The template to use there. Goes into `selected_template`.
        force_template: Option<String>,
    }
}

model! {
    /// Which members have which shards.
    Assignment {
        /// The member that leads.
        primary: Option<i32>,
        /// All members that have a copy.
        owners: Vec<i32>,
        /// The shards, from 0.
        shard_ids: Vec<i32>,
    }
}

words! {
    /// How shards keep their copies the same.
    ShardType {
        /// Some time.
        #[default]
        Basic = "BASIC",
        /// By consensus.
        Raft = "RAFT",
        /// By version trees.
        Mst = "MST",
    }
}

words! {
    /// What is done about clusters that can't be brought to a deployment.
    Policy {
        /// The others are brought to it, and these are caught up when they can be.
        #[default]
        BestEffort = "BEST_EFFORT",
        /// None is.
        AllOrNothing = "ALL_OR_NOTHING",
    }
}

model! {
    /// What is done about requirements that aren't met.
    Enforcement {
        /// Whether anything is done, OBSERVE unless said otherwise.
        mode: Option<EnforcementMode>,
        /// What may be changed; all of it, unless said otherwise.
        dimensions: Vec<Dimension>,
    }
}

words! {
    /// Whether anything is done about requirements that aren't met.
    EnforcementMode {
        /// Nothing is looked at.
        Off = "OFF",
        /// Recommendations are made.
        #[default]
        Observe = "OBSERVE",
        /// Recommendations are followed, within safeguards. While nothing does so, plans tell that.
        Enforce = "ENFORCE",
    }
}

words! {
    /// What enforcement may change.
    Dimension {
        /// How many instances there are.
        #[default]
        Replicas = "REPLICAS",
        /// How much memory each has.
        Memory = "MEMORY",
        /// How much processor time each has.
        Cpu = "CPU",
    }
}

model! {
    /// How changes are brought about, and what classes tell of themselves. Goes into `rollout`,
    /// `telemetry` and `paused`.
    Options {
        /// How long a class may take to become Available before it counts as Degraded.
        progress_deadline_seconds: Option<i32>,
        /// How long what a change of template replaces goes on answering.
        drain_seconds: Option<i32>,
        /// Whether nothing is changed for as long as this is set.
        paused: bool,
        /// Whether Prometheus is told to scrape the functions, yes unless said otherwise.
        metrics: Option<bool>,
        /// Where the functions' metrics are.
        metrics_path: Option<String>,
        /// Where traces are to be sent.
        otlp_endpoint: Option<String>,
    }
}
