//! Functions of a class.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Constraints, Requirements};

/// The highest `min_scale` and `max_scale` that a function may have.
pub const MAX_SCALE: i32 = 10_000;

/// A function of the class.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct FunctionSpec {
    /// Identifies the function within the class. Names of objects contain it in lower case, so two
    /// keys of a class must not differ only in case.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = "^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$")
    )]
    pub key: String,
    #[serde(flatten)]
    pub body: SingleFunction,
}

/// A function without a key: the only function of its class.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct SingleFunction {
    /// Kind of function: `TASK` and `CUSTOM` require an image; `BUILTIN`, `MACRO` and `LOGICAL` run
    /// a container only if they have one. Defaults to `TASK`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<FunctionType>,
    /// Container image. Required for the types `TASK` and `CUSTOM`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub image: Option<String>,
    /// Port that the container listens on, 1 to 65535. Defaults to 8080.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
    /// Names under which the class exposes the function.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub bindings: Vec<Binding>,
    /// Who may call the function: `PRIVATE` (the class itself), `INTERNAL` (workloads in the
    /// cluster) or `PUBLIC` (anyone). Defaults to `INTERNAL`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// Scaling bounds, resources and pod settings of the function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provision: Option<Provision>,
    /// Probes of the container. If omitted, the container is healthy when its port accepts TCP
    /// connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
    /// Call timeout and environment variables of the function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<FunctionConfig>,
    /// Non-functional requirements of this function. Each field that is set overrides that of
    /// `nfr_requirements`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requirements: Option<Requirements>,
    /// Hard limits of this function. The stricter of these and the constraints of the class
    /// applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<Constraints>,
    /// How the function uses the data grid of the class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub odgm: Option<OdgmIntegration>,
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

/// A name under which a class exposes a function.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct Binding {
    /// Name of the binding.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Who may call the function through this binding: `PRIVATE` (the class itself), `INTERNAL`
    /// (workloads in the cluster) or `PUBLIC` (anyone). Defaults to the function's `access`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// Calls the function when an object of the class changes. Requires the addon `odgm`. Defaults
    /// to false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trigger_on_state_change: bool,
    /// Does not wait for the result of calls triggered by state changes. Defaults to false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub async_execution: bool,
}

/// Who may call a function: `PRIVATE` (the class itself), `INTERNAL` (workloads in the cluster) or
/// `PUBLIC` (anyone). A binding defaults to the access of its function, a function to `INTERNAL`.
/// The widest access of its bindings applies to a function.
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

/// Scaling bounds, resources and pod settings of a function.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("!has(self.min_scale) || !has(self.max_scale) || self.min_scale <= self.max_scale")
        .message("min_scale must not be greater than max_scale")
)]
pub struct Provision {
    /// Minimum number of instances, 0 to 10000. 0 allows scale to zero where the template supports
    /// it. Defaults to 0 on Knative, otherwise to 1 (profile `dev`), 2 (`edge`) or 3 (`full`). A
    /// required availability may raise it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10000))]
    pub min_scale: Option<i32>,
    /// Maximum number of instances, 1 to 10000. If omitted, Knative scales without limit; a
    /// Deployment scales with the required throughput if `min_scale` is omitted as well, and
    /// otherwise has a fixed size.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub max_scale: Option<i32>,
    /// Resources requested for each instance. If omitted, 500m CPU and 512Mi for a required latency
    /// below 100 ms, 200m and 256Mi for a higher one, and CRM's configured size without a latency
    /// requirement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Resources>,
    /// Resource limits of each instance. Defaults to CRM's configured limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Resources>,
    /// Environment variables of the container. They take precedence over `config.env`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,
    /// Secrets and ConfigMaps whose keys all become environment variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub env_from: Vec<EnvFrom>,
    /// When the kubelet pulls the image: `Always`, `IfNotPresent` or `Never`. If omitted, the
    /// default of Kubernetes for the image tag applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<PullPolicy>,
    /// Names of Secrets with the credentials for pulling the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub image_pull_secrets: Vec<String>,
    /// Name of the ServiceAccount of the pods. Defaults to the namespace's default account.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account: Option<String>,
    /// Volumes mounted into the container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["mount_path".into()]))]
    pub volume_mounts: Vec<VolumeMount>,
    /// Entry point of the container. Defaults to the entry point of the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub command: Vec<String>,
    /// Arguments of the entry point. Defaults to the arguments of the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub args: Vec<String>,
    /// Security settings of the pod. Defaults to the level `restricted`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub security: Security,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Security settings of a pod.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct Security {
    /// Pod security standard: `restricted` runs without root, without capabilities and without
    /// privilege escalation; `baseline` permits images that run as root. Defaults to `restricted`.
    #[serde(default)]
    pub level: SecurityLevel,
    /// Numeric user id of the container's process. With the level `restricted` it defaults to 65532
    /// regardless of the image; with `baseline` it defaults to the user of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub run_as_user: Option<i64>,
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

/// Quantities of compute resources, in the notation of Kubernetes.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct Resources {
    /// CPU, such as `250m` or `2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub cpu: Option<String>,
    /// Memory, such as `256Mi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub memory: Option<String>,
    /// Local ephemeral storage, such as `1Gi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub ephemeral_storage: Option<String>,
}

/// An environment variable with at most one source. Without a source its value is empty.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("(has(self.value) ? 1 : 0) + (has(self.secret) ? 1 : 0) + (has(self.config_map) ? 1 : 0) <= 1")
        .message("at most one of value, secret and config_map may be set")
)]
pub struct EnvVar {
    /// Name of the variable. Names that the platform sets are rejected.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[A-Za-z_][A-Za-z0-9_.-]*$"))]
    pub name: String,
    /// Literal value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32768))]
    pub value: Option<String>,
    /// Key of a Secret that holds the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<KeyRef>,
    /// Key of a ConfigMap that holds the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<KeyRef>,
}

/// A key of a Secret or ConfigMap in the same namespace.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct KeyRef {
    /// Name of the Secret or ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key within the object.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
    /// Lets the pod start if the object or key doesn't exist. Defaults to false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// A Secret or ConfigMap whose keys all become environment variables. Exactly one of `secret` and
/// `config_map` must be set.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("has(self.secret) != has(self.config_map)").message("exactly one of secret and config_map must be set")
)]
pub struct EnvFrom {
    /// Name of a Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub secret: Option<String>,
    /// Name of a ConfigMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub config_map: Option<String>,
    /// Prefix of the variable names. Defaults to no prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub prefix: Option<String>,
    /// Lets the pod start if the object doesn't exist. Defaults to false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// When the kubelet pulls the image: `Always` (at each start), `IfNotPresent` (if the node doesn't
/// have it) or `Never` (the node must have it). If omitted, the default of Kubernetes for the image
/// tag applies.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    /// At each start.
    Always,
    /// If the node doesn't have it.
    IfNotPresent,
    /// Never; the node must have it.
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

/// A volume mounted into a container. Exactly one of `secret`, `config_map`, `claim` and
/// `empty_dir` must be set.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("(has(self.secret) ? 1 : 0) + (has(self.config_map) ? 1 : 0) + (has(self.claim) ? 1 : 0) + (has(self.empty_dir) ? 1 : 0) == 1")
        .message("exactly one of secret, config_map, claim and empty_dir must be set")
)]
pub struct VolumeMount {
    /// Absolute path of the mount in the container.
    #[schemars(length(min = 1, max = 1024), regex(pattern = "^/"))]
    pub mount_path: String,
    /// Path within the volume to mount. Defaults to the root of the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub sub_path: Option<String>,
    /// Mounts the volume read-only. Defaults to false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Name of a Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub secret: Option<String>,
    /// Name of a ConfigMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub config_map: Option<String>,
    /// Name of a PersistentVolumeClaim.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub claim: Option<String>,
    /// An empty directory with the lifetime of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub empty_dir: Option<EmptyDir>,
}

/// An empty directory with the lifetime of the pod.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct EmptyDir {
    /// Maximum size, such as `1Gi`. Unlimited if omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub size_limit: Option<String>,
    /// Stores the directory in memory (tmpfs). Defaults to false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_memory: bool,
}

/// Startup, readiness and liveness probes of a container. Without `path` and `grpc`, the probes
/// open a TCP connection.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct HealthCheck {
    /// Path of an HTTP GET probe. Must not be combined with `grpc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = "^/"))]
    pub path: Option<String>,
    /// Port of the probes. Defaults to the port of the function.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
    /// Uses the gRPC health checking protocol. Defaults to false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub grpc: bool,
    /// Seconds that the container may take to start before it is restarted, 1 to 3600. Defaults to
    /// 60.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub startup_seconds: Option<i32>,
    /// Seconds between readiness probes, 1 to 3600; liveness probes run half as often. Defaults to
    /// 2 if the latency requirement is below 100 ms, otherwise to 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub period_seconds: Option<i32>,
    /// Timeout of each probe in seconds, 1 to 3600. Defaults to the call timeout of the function,
    /// bounded to 1 to 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: Option<i32>,
    /// Number of consecutive failures after which a probe fails, 1 to 100. Defaults to 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub failure_threshold: Option<i32>,
}

/// Call timeout and environment variables of a function.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct FunctionConfig {
    /// Maximum duration of a call in milliseconds, 1 to 86400000. If omitted, the default of the
    /// template applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400_000))]
    pub timeout_ms: Option<i32>,
    /// Environment variables by name. Variables of `provision.env` take precedence.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub env: BTreeMap<String, String>,
}

/// How a function uses the data grid of its class.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct OdgmIntegration {
    /// Collections that the function uses. Defaults to all collections of the class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub collections: Vec<String>,
    /// Access of the function to these collections: `read_write`, `read_only` or `write_only`.
    /// Defaults to `read_write`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_mode: Option<AccessMode>,
    /// What the function caches: `none`, `read_through` or `write_through`. Defaults to `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caching_strategy: Option<CachingStrategy>,
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
