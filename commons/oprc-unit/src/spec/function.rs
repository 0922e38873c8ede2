//! Functions of a class.

use std::collections::BTreeMap;

use oprc_models::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Constraints, MacroSpec, Requirements};

unit_types! {
    /// A function of the class.
    FunctionSpec {
        /// Identifies the function within the class. Names of objects contain it in lower case, so
        /// two keys of a class must not differ only in case.
        #[schemars(
            length(min = 1, max = limits::NAME),
            regex(pattern = "^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$")
        )]
        key: String,
        #[serde(flatten)]
        body: SingleFunction,
    }

    /// A function without a key: the only function of its class.
    SingleFunction {
        /// Kind of function: `TASK` and `CUSTOM` require an image; `BUILTIN`, `MACRO` and `LOGICAL`
        /// run a container only if they have one. Defaults to `TASK`.
        #[serde(rename = "type")]
        kind?: Option<FunctionType>,
        /// Container image. Required for the types `TASK` and `CUSTOM`.
        #[schemars(length(min = 1, max = limits::IMAGE))]
        image?: Option<String>,
        /// Port that the container listens on, 1 to 65535. Defaults to 8080.
        #[schemars(range(min = limits::PORT.min, max = limits::PORT.max))]
        port?: Option<i32>,
        /// Names under which the class exposes the function.
        #[schemars(length(max = limits::BINDINGS))]
        bindings?: Vec<Binding>,
        /// Who may call the function: `PRIVATE` (the class itself), `INTERNAL` (workloads in the
        /// cluster) or `PUBLIC` (anyone). Defaults to `INTERNAL`. A function has the widest access
        /// of all its bindings. The data grid enforces it for calls of methods; calls of the
        /// function's own Service need NetworkPolicies. A function without bindings is a method with
        /// its key as its name.
        access?: Option<Access>,
        /// Scaling bounds, resources and pod settings of the function.
        provision?: Option<Provision>,
        /// Probes of the container. If omitted, the container is healthy when its port accepts TCP
        /// connections.
        health_check?: Option<HealthCheck>,
        /// Call timeout and environment variables of the function.
        config?: Option<FunctionConfig>,
        /// Non-functional requirements of this function. Each field that is set overrides that of
        /// `nfr_requirements`.
        requirements?: Option<Requirements>,
        /// Hard limits of this function. The stricter of these and the constraints of the class
        /// applies.
        constraints?: Option<Constraints>,
        /// How the function uses the data grid of the class.
        odgm?: Option<OdgmIntegration>,
        /// Steps of a function of type `MACRO`, which the data grid of the class executes.
        #[serde(rename = "macro")]
        flow?: Option<MacroSpec>,
    }
}

/// Kind of function: `TASK` and `CUSTOM` require an image; `BUILTIN`, `MACRO` and `LOGICAL` run a
/// container only if they have one. Defaults to `TASK`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
pub enum FunctionType {
    /// Provided by the platform.
    Builtin,
    /// Runs in a container.
    #[default]
    Task,
    /// A flow of other functions.
    Macro,
    /// Has no implementation of its own.
    Logical,
    /// Runs in a container with its own protocol.
    Custom,
}

unit_types! {
    /// A name under which a class exposes a function.
    Binding {
        /// Name of the binding.
        #[schemars(length(min = 1, max = limits::NAME))]
        name: String,
        /// Who may call the function through this binding: `PRIVATE` (the class itself), `INTERNAL`
        /// (workloads in the cluster) or `PUBLIC` (anyone). Defaults to the function's `access`.
        /// The data grid enforces it; calls of the function's own Service need NetworkPolicies.
        access?: Option<Access>,
        /// CEL expression over `object` (`id`, `version`, `state`), `args` and `method` that must be
        /// true for a call; otherwise the data grid refuses it. Defaults to no condition.
        #[schemars(length(min = 1, max = limits::CONDITION))]
        condition?: Option<String>,
        /// Calls the function when an object of the class changes. Requires the addon `odgm`.
        /// Defaults to false.
        trigger_on_state_change?: bool,
        /// Does not wait for the result of calls triggered by state changes. Defaults to false.
        async_execution?: bool,
    }
}

/// Who may call a function: `PRIVATE` (the class itself), `INTERNAL` (workloads in the cluster) or
/// `PUBLIC` (anyone). A binding defaults to the access of its function, a function to `INTERNAL`.
/// A function has the widest access of all its bindings. The data grid enforces it for calls of
/// methods; calls of a function's own Service need NetworkPolicies.
#[derive(
    JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum Access {
    /// The class itself.
    Private,
    /// Workloads in the cluster.
    #[default]
    Internal,
    /// Anyone. A Knative Service gets a public address.
    Public,
}

unit_types! {
    /// Scaling bounds, resources and pod settings of a function.
    #[x_kube(
        validation = Rule::new("!has(self.min_scale) || !has(self.max_scale) || self.min_scale <= self.max_scale")
            .message("min_scale must not be greater than max_scale")
    )]
    Provision {
        /// Minimum number of instances, 0 to 10000. 0 allows scale to zero where the template
        /// supports it. Defaults to 0 on Knative, otherwise to 1 (profile `dev`), 2 (`edge`) or 3
        /// (`full`). A required availability may raise it.
        #[schemars(range(min = limits::MIN_SCALE.min, max = limits::MIN_SCALE.max))]
        min_scale?: Option<i32>,
        /// Maximum number of instances, 1 to 10000. If omitted, Knative scales without limit; a
        /// Deployment scales with the required throughput if `min_scale` is omitted as well, and
        /// otherwise has a fixed size.
        #[schemars(range(min = limits::MAX_SCALE.min, max = limits::MAX_SCALE.max))]
        max_scale?: Option<i32>,
        /// Resources requested for each instance. If omitted, 500m CPU and 512Mi for a required
        /// latency below 100 ms, 200m and 256Mi for a higher one, and CRM's configured size without
        /// a latency requirement.
        requests?: Option<Resources>,
        /// Resource limits of each instance. Defaults to CRM's configured limits.
        limits?: Option<Resources>,
        /// Environment variables of the container. They take precedence over `config.env`.
        #[schemars(length(max = limits::ENV))]
        #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
        env?: Vec<EnvVar>,
        /// Secrets and ConfigMaps whose keys all become environment variables.
        #[schemars(length(max = limits::ENV_FROM))]
        env_from?: Vec<EnvFrom>,
        /// When the kubelet pulls the image: `Always`, `IfNotPresent` or `Never`. If omitted, the
        /// default of Kubernetes for the image tag applies.
        image_pull_policy?: Option<PullPolicy>,
        /// Names of Secrets with the credentials for pulling the image.
        #[schemars(length(max = limits::PULL_SECRETS), inner(length(min = 1, max = limits::NAME)))]
        #[x_kube(merge_strategy = ListMerge::Set)]
        image_pull_secrets?: Vec<String>,
        /// Name of the ServiceAccount of the pods. Defaults to the namespace's default account.
        #[schemars(length(min = 1, max = limits::NAME))]
        service_account?: Option<String>,
        /// Volumes mounted into the container.
        #[schemars(length(max = limits::VOLUMES))]
        #[x_kube(merge_strategy = ListMerge::Map(vec!["mount_path".into()]))]
        volume_mounts?: Vec<VolumeMount>,
        /// Entry point of the container. Defaults to the entry point of the image.
        #[schemars(length(max = limits::ARGUMENTS), inner(length(max = limits::ARGUMENT)))]
        command?: Vec<String>,
        /// Arguments of the entry point. Defaults to the arguments of the image.
        #[schemars(length(max = limits::ARGUMENTS), inner(length(max = limits::ARGUMENT)))]
        args?: Vec<String>,
        /// Security settings of the pod. Defaults to the level `restricted`.
        security?: Security,
    }

    /// Security settings of a pod.
    Security {
        /// Pod security standard: `restricted` runs without root, without capabilities and without
        /// privilege escalation; `baseline` permits images that run as root. Defaults to
        /// `restricted`.
        #[serde(default)]
        level: SecurityLevel,
        /// Numeric user id of the container's process. With the level `restricted` it defaults to
        /// 65532 regardless of the image; with `baseline` it defaults to the user of the image.
        #[schemars(range(min = limits::USER_ID.min, max = limits::USER_ID.max))]
        run_as_user?: Option<i64>,
    }
}

/// Pod security standard: `restricted` runs without root, without capabilities and without
/// privilege escalation; `baseline` permits images that run as root. Defaults to `restricted`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum SecurityLevel {
    /// No root, no capabilities, no privilege escalation.
    #[default]
    Restricted,
    /// Permits images that run as root.
    Baseline,
}

unit_types! {
    /// Quantities of compute resources, in the notation of Kubernetes.
    Resources {
        /// CPU, such as `250m` or `2`.
        #[schemars(length(min = 1, max = limits::QUANTITY))]
        cpu?: Option<String>,
        /// Memory, such as `256Mi`.
        #[schemars(length(min = 1, max = limits::QUANTITY))]
        memory?: Option<String>,
        /// Local ephemeral storage, such as `1Gi`.
        #[schemars(length(min = 1, max = limits::QUANTITY))]
        ephemeral_storage?: Option<String>,
    }

    /// An environment variable with at most one source. Its value is empty if no source is set.
    #[x_kube(
        validation = Rule::new("(has(self.value) ? 1 : 0) + (has(self.secret) ? 1 : 0) + (has(self.config_map) ? 1 : 0) <= 1")
            .message("at most one of value, secret and config_map may be set")
    )]
    EnvVar {
        /// Name of the variable. Names that the platform sets are rejected.
        #[schemars(length(min = 1, max = limits::NAME), regex(pattern = "^[A-Za-z_][A-Za-z0-9_.-]*$"))]
        name: String,
        /// Literal value.
        #[schemars(length(max = limits::ENV_VALUE))]
        value?: Option<String>,
        /// Key of a Secret that holds the value.
        secret?: Option<KeyRef>,
        /// Key of a ConfigMap that holds the value.
        config_map?: Option<KeyRef>,
    }

    /// A key of a Secret or ConfigMap in the same namespace.
    KeyRef {
        /// Name of the Secret or ConfigMap.
        #[schemars(length(min = 1, max = limits::NAME))]
        name: String,
        /// Key within the object.
        #[schemars(length(min = 1, max = limits::NAME))]
        key: String,
        /// Lets the pod start if the object or key doesn't exist. Defaults to false.
        optional?: bool,
    }

    /// A Secret or ConfigMap whose keys all become environment variables. Exactly one of `secret`
    /// and `config_map` must be set.
    #[x_kube(
        validation = Rule::new("has(self.secret) != has(self.config_map)").message("exactly one of secret and config_map must be set")
    )]
    EnvFrom {
        /// Name of a Secret.
        #[schemars(length(min = 1, max = limits::NAME))]
        secret?: Option<String>,
        /// Name of a ConfigMap.
        #[schemars(length(min = 1, max = limits::NAME))]
        config_map?: Option<String>,
        /// Prefix of the variable names. Defaults to no prefix.
        #[schemars(length(max = limits::ENV_PREFIX))]
        prefix?: Option<String>,
        /// Lets the pod start if the object doesn't exist. Defaults to false.
        optional?: bool,
    }
}

/// When the kubelet pulls the image: `Always` (at each start), `IfNotPresent` (if the Kubernetes
/// node doesn't have it) or `Never` (the Kubernetes node must have it). If omitted, the default of
/// Kubernetes for the image tag applies.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    /// At each start.
    Always,
    /// If the Kubernetes node doesn't have it.
    IfNotPresent,
    /// Never; the Kubernetes node must have it.
    Never,
}

impl PullPolicy {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

unit_types! {
    /// A volume mounted into a container. Exactly one of `secret`, `config_map`, `claim` and
    /// `empty_dir` must be set.
    #[x_kube(
        validation = Rule::new("(has(self.secret) ? 1 : 0) + (has(self.config_map) ? 1 : 0) + (has(self.claim) ? 1 : 0) + (has(self.empty_dir) ? 1 : 0) == 1")
            .message("exactly one of secret, config_map, claim and empty_dir must be set")
    )]
    VolumeMount {
        /// Absolute path of the mount in the container, without colons.
        #[schemars(length(min = 1, max = limits::PATH), regex(pattern = "^/[^:]*$"))]
        mount_path: String,
        /// Path within the volume to mount. Defaults to the root of the volume.
        #[schemars(length(min = 1, max = limits::PATH))]
        sub_path?: Option<String>,
        /// Mounts the volume read-only. Defaults to false.
        read_only?: bool,
        /// Name of a Secret.
        #[schemars(length(min = 1, max = limits::NAME))]
        secret?: Option<String>,
        /// Name of a ConfigMap.
        #[schemars(length(min = 1, max = limits::NAME))]
        config_map?: Option<String>,
        /// Name of a PersistentVolumeClaim.
        #[schemars(length(min = 1, max = limits::NAME))]
        claim?: Option<String>,
        /// An empty directory with the lifetime of the pod.
        empty_dir?: Option<EmptyDir>,
    }

    /// An empty directory with the lifetime of the pod.
    EmptyDir {
        /// Maximum size, such as `1Gi`. Unlimited if omitted.
        #[schemars(length(min = 1, max = limits::QUANTITY))]
        size_limit?: Option<String>,
        /// Stores the directory in memory (tmpfs). Defaults to false.
        in_memory?: bool,
    }

    /// Startup, readiness and liveness probes of a container. Without `path` and `grpc`, the probes
    /// open a TCP connection.
    HealthCheck {
        /// Path of an HTTP GET probe. Must not be combined with `grpc`.
        #[schemars(length(min = 1, max = limits::PATH), regex(pattern = "^/"))]
        path?: Option<String>,
        /// Port of the probes. Defaults to the port of the function.
        #[schemars(range(min = limits::PORT.min, max = limits::PORT.max))]
        port?: Option<i32>,
        /// Uses the gRPC health checking protocol. Defaults to false.
        grpc?: bool,
        /// Seconds that the container may take to start before it is restarted, 1 to 3600. Defaults
        /// to 60.
        #[schemars(range(min = limits::PROBE_SECONDS.min, max = limits::PROBE_SECONDS.max))]
        startup_seconds?: Option<i32>,
        /// Seconds between readiness probes, 1 to 3600; liveness probes run half as often. Defaults
        /// to 2 if the latency requirement is below 100 ms, otherwise to 5.
        #[schemars(range(min = limits::PROBE_SECONDS.min, max = limits::PROBE_SECONDS.max))]
        period_seconds?: Option<i32>,
        /// Timeout of each probe in seconds, 1 to 3600. Defaults to the call timeout of the
        /// function, clamped to 1–5 s, or to 1 s without a call timeout.
        #[schemars(range(min = limits::PROBE_SECONDS.min, max = limits::PROBE_SECONDS.max))]
        timeout_seconds?: Option<i32>,
        /// Number of consecutive failures after which a probe fails, 1 to 100. Defaults to 3.
        #[schemars(range(min = limits::FAILURE_THRESHOLD.min, max = limits::FAILURE_THRESHOLD.max))]
        failure_threshold?: Option<i32>,
    }

    /// Call timeout and environment variables of a function.
    FunctionConfig {
        /// Maximum duration of a call in milliseconds, 1 to 86400000; of the whole run for a Job.
        /// If omitted, a Job has no limit, Knative's own default applies, and a terminating pod of a
        /// Deployment has 25 s to finish calls.
        #[schemars(range(min = limits::CALL_MS.min, max = limits::CALL_MS.max))]
        timeout_ms?: Option<i32>,
        /// How often the data grid repeats a call that failed without an answer of the function, 0
        /// to 10. Defaults to the data grid's own number.
        #[schemars(range(min = limits::RETRIES.min, max = limits::RETRIES.max))]
        retries?: Option<i32>,
        /// Environment variables by name. Variables of `provision.env` take precedence.
        #[schemars(extend("maxProperties" = limits::ENV))]
        env?: BTreeMap<String, String>,
    }

    /// How a function uses the data grid of its class.
    OdgmIntegration {
        /// Collections that the function uses. Defaults to all collections of the class.
        #[schemars(length(max = limits::COLLECTIONS), inner(length(min = 1, max = limits::NAME)))]
        collections?: Vec<String>,
        /// Access of the function to these collections: `read_write`, `read_only` or `write_only`.
        /// Calls of a `read_only` function change no object, and run concurrently. Defaults to
        /// `read_write`.
        access_mode?: Option<AccessMode>,
        /// What the function caches: `none`, `read_through` or `write_through`. Defaults to `none`.
        caching_strategy?: Option<CachingStrategy>,
        /// Calls the function when objects of the class change, in addition to bindings with
        /// `trigger_on_state_change` and to `odgm_config.event_processing`.
        #[schemars(length(max = limits::TRIGGERS))]
        event_triggers?: Vec<FunctionTrigger>,
    }

    /// Calls a function when objects of its class change.
    FunctionTrigger {
        /// Name of the binding to call. Defaults to the first binding of the function.
        #[schemars(length(min = 1, max = limits::NAME))]
        method?: Option<String>,
        /// Changes that trigger the call: `STATE_CHANGE` (any), `CREATE`, `UPDATE` or `DELETE`. Defaults
        /// to `STATE_CHANGE`.
        trigger_type?: Option<TriggerType>,
        /// Names of collections whose changes trigger the call; `*` matches any characters, such as
        /// in `Order_*`. Defaults to the `collections` of the function, or else to all.
        #[schemars(length(max = limits::COLLECTIONS), inner(length(min = 1, max = limits::NAME)))]
        collection_filters?: Vec<String>,
        /// Does not wait for the result of the call. Defaults to false.
        async_execution?: bool,
    }
}

/// Changes that trigger a call: `STATE_CHANGE` (any), `CREATE`, `UPDATE` or `DELETE`. Defaults to
/// `STATE_CHANGE`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TriggerType {
    /// Any change.
    #[default]
    StateChange,
    /// An object was created.
    Create,
    /// The state of an object was changed.
    Update,
    /// An object was deleted.
    Delete,
}

/// Access of a function to collections: `read_write`, `read_only` or `write_only`. Defaults to
/// `read_write`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum AccessMode {
    /// Reads and writes.
    #[default]
    ReadWrite,
    /// Reads only.
    ReadOnly,
    /// Writes only.
    WriteOnly,
}

/// What a function caches: `none`, `read_through` (data that it read) or `write_through` (data that
/// it read or wrote). Defaults to `none`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum CachingStrategy {
    /// Nothing.
    #[default]
    None,
    /// Data that it read.
    ReadThrough,
    /// Data that it read or wrote.
    WriteThrough,
}
