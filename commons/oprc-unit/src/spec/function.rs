//! Functions of a class: what runs, and with what.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Constraints, Requirements};

/// One function of a class.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct FunctionSpec {
    /// What the function is known by within the class.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = "^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$")
    )]
    pub key: String,
    /// Everything else.
    #[serde(flatten)]
    pub body: SingleFunction,
}

/// A function without a key of its own: the only one of its class.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct SingleFunction {
    /// What kind of function it is. `TASK` and `CUSTOM` run in containers; `BUILTIN`, `MACRO` and
    /// `LOGICAL` do so only where they have an image.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<FunctionType>,
    /// The container image.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub image: Option<String>,
    /// The port that the container listens on, 8080 unless said otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
    /// The names under which the class offers the function.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub bindings: Vec<Binding>,
    /// Who may call the function, where its bindings don't say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// What the function runs with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provision: Option<Provision>,
    /// How its health is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
    /// Settings of the function itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<FunctionConfig>,
    /// What is required of this function; it stands before what is required of the class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requirements: Option<Requirements>,
    /// What this function must never exceed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<Constraints>,
    /// How the function uses the data grid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub odgm: Option<OdgmIntegration>,
}

/// What kind of function it is.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
pub enum FunctionType {
    /// Comes with the platform.
    Builtin,
    /// Runs in a container.
    #[default]
    Task,
    /// A flow of other functions.
    Macro,
    /// Has no implementation of its own.
    Logical,
    /// Runs in a container in its own way.
    Custom,
}

/// A name under which a class offers a function.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct Binding {
    /// The name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Who may call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// Whether the function is called when an object of the class changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trigger_on_state_change: bool,
    /// Whether such a call isn't waited for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub async_execution: bool,
}

/// Who may call a function.
#[derive(
    JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum Access {
    /// The class itself.
    Private,
    /// Everything in the cluster.
    #[default]
    Internal,
    /// Everybody.
    Public,
}

/// What a function runs with.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("!has(self.min_scale) || !has(self.max_scale) || self.min_scale <= self.max_scale")
        .message("min_scale is larger than max_scale")
)]
pub struct Provision {
    /// How many instances there are at least; 0 lets a template that can do it scale to nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10000))]
    pub min_scale: Option<i32>,
    /// How many instances there are at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub max_scale: Option<i32>,
    /// What each instance asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Resources>,
    /// What each instance may not exceed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Resources>,
    /// Platform variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,
    /// Secrets and ConfigMaps all of whose keys become environment variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub env_from: Vec<EnvFrom>,
    /// When the image is pulled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<PullPolicy>,
    /// Secrets that the image is pulled with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub image_pull_secrets: Vec<String>,
    /// The account that the function runs under.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account: Option<String>,
    /// What is mounted into the container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["mount_path".into()]))]
    pub volume_mounts: Vec<VolumeMount>,
    /// The program to run, in place of the image's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub command: Vec<String>,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub args: Vec<String>,
    /// What the container may do.
    #[serde(default, skip_serializing_if = "is_default")]
    pub security: Security,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What a container may do.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct Security {
    /// The pod security standard that it keeps to.
    #[serde(default)]
    pub level: SecurityLevel,
    /// The user that it runs as. A restricted container runs as 65532 unless said otherwise,
    /// whoever its image names; one of `baseline` as its image says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub run_as_user: Option<i64>,
}

/// A pod security standard.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum SecurityLevel {
    /// No root, no capabilities, no escalation.
    #[default]
    Restricted,
    /// What the image asks for, for images that run as root.
    Baseline,
}

/// Amounts of resources.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct Resources {
    /// Processor time, such as `250m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub cpu: Option<String>,
    /// Memory, such as `256Mi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub memory: Option<String>,
    /// Disk space that goes with the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub ephemeral_storage: Option<String>,
}

/// An environment variable.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("(has(self.value) ? 1 : 0) + (has(self.secret) ? 1 : 0) + (has(self.config_map) ? 1 : 0) <= 1")
        .message("give one of value, secret and config_map")
)]
pub struct EnvVar {
    /// Its name.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[A-Za-z_][A-Za-z0-9_.-]*$"))]
    pub name: String,
    /// Its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32768))]
    pub value: Option<String>,
    /// The key of a Secret that has its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<KeyRef>,
    /// The key of a ConfigMap that has its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<KeyRef>,
}

/// A key of a Secret or ConfigMap.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct KeyRef {
    /// The object's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
    /// Whether the pod starts without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// A Secret or ConfigMap all of whose keys become environment variables.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("has(self.secret) != has(self.config_map)").message("give either secret or config_map")
)]
pub struct EnvFrom {
    /// The name of a Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub secret: Option<String>,
    /// The name of a ConfigMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub config_map: Option<String>,
    /// What stands before each name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub prefix: Option<String>,
    /// Whether the pod starts without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// When an image is pulled.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    /// At each start.
    Always,
    /// Where it isn't there yet.
    IfNotPresent,
    /// Never: it must be there.
    Never,
}

impl PullPolicy {
    /// Kubernetes' word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

/// Something that is mounted into a container, from exactly one source.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("(has(self.secret) ? 1 : 0) + (has(self.config_map) ? 1 : 0) + (has(self.claim) ? 1 : 0) + (has(self.empty_dir) ? 1 : 0) == 1")
        .message("give exactly one of secret, config_map, claim and empty_dir")
)]
pub struct VolumeMount {
    /// Where it is mounted.
    #[schemars(length(min = 1, max = 1024), regex(pattern = "^/"))]
    pub mount_path: String,
    /// Only this path of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub sub_path: Option<String>,
    /// Whether it can't be written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// The name of a Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub secret: Option<String>,
    /// The name of a ConfigMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub config_map: Option<String>,
    /// The name of a volume claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub claim: Option<String>,
    /// A folder that goes with the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub empty_dir: Option<EmptyDir>,
}

/// A folder that goes with the pod.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct EmptyDir {
    /// How large it may become.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub size_limit: Option<String>,
    /// Whether it is kept in memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_memory: bool,
}

/// How the health of a function is asked for.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct HealthCheck {
    /// The path to ask over HTTP; left out, being reached is healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = "^/"))]
    pub path: Option<String>,
    /// The port to ask, the function's own unless said otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
    /// Whether gRPC's health protocol is spoken.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub grpc: bool,
    /// How long the function may take to start before it is ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub startup_seconds: Option<i32>,
    /// How often is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub period_seconds: Option<i32>,
    /// How long an answer may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: Option<i32>,
    /// How often in a row it may fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub failure_threshold: Option<i32>,
}

/// Settings of a function itself.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct FunctionConfig {
    /// How long one call may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400_000))]
    pub timeout_ms: Option<i32>,
    /// Platform variables; those of `provision` stand before them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub env: BTreeMap<String, String>,
}

/// How a function uses the data grid.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct OdgmIntegration {
    /// The collections that it uses; all of the class's, unless said otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub collections: Vec<String>,
    /// What it does with them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_mode: Option<AccessMode>,
    /// What it keeps of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caching_strategy: Option<CachingStrategy>,
}

/// What a function does with collections.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum AccessMode {
    /// Reads and writes.
    #[default]
    ReadWrite,
    /// Reads.
    ReadOnly,
    /// Writes.
    WriteOnly,
}

/// What a function keeps of collections.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum CachingStrategy {
    /// Nothing.
    #[default]
    None,
    /// What it has read.
    ReadThrough,
    /// What it has read or written.
    WriteThrough,
}
