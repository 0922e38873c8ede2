//! Containers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    diagnostics::Path,
    macros::{models, string_enums},
    yaml::{FromNode, Kind, Node, Reader, Scalar, scalar},
};

models! {
    /// Container of a function. Sent to CRM as `image`, `port`, `health_check` and `provision` of
    /// `functions[]`.
    Container {
        /// Container image.
        image: Option<String>,
        /// Port that the container listens on; the default is 8080.
        port: Option<i32>,
        /// Minimum number of instances; 0 allows scale to zero.
        min_scale: Option<i32>,
        /// Maximum number of instances.
        max_scale: Option<i32>,
        /// CPU limit of an instance, such as `500m`.
        cpu | "limitsCpu": Option<Quantity>,
        /// Memory limit of an instance, such as `256Mi`.
        memory | "limitsMemory": Option<Quantity>,
        /// Ephemeral storage limit of an instance, such as `1Gi`.
        ephemeral_storage: Option<Quantity>,
        /// CPU request of an instance.
        requests_cpu: Option<Quantity>,
        /// Memory request of an instance.
        requests_memory: Option<Quantity>,
        /// Ephemeral storage request of an instance.
        requests_ephemeral_storage: Option<Quantity>,
        /// Environment variables: a value, or a key of a Secret or ConfigMap.
        env: BTreeMap<String, EnvValue>,
        /// Secrets and ConfigMaps whose keys all become environment variables.
        env_from: Vec<EnvFrom>,
        /// Image pull policy.
        pull_policy | "imagePullPolicy": Option<PullPolicy>,
        /// Names of image pull secrets.
        pull_secrets | "imagePullSecrets": Vec<String>,
        /// Name of the service account.
        service_account: Option<String>,
        /// Volumes to mount.
        volumes | "volumeMounts": Vec<Volume>,
        /// Command; the default is the entrypoint of the image.
        command: Vec<Text>,
        /// Arguments of the command.
        args: Vec<Text>,
        /// Security settings.
        security: Option<Security>,
        /// Health check.
        health_check: Option<HealthCheck>,
    }
}

/// A Kubernetes resource quantity as written, such as `250m` or `1Gi`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Quantity(pub String);

/// A string that YAML may also have as an unquoted number or boolean, taken as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Text(pub String);

/// The text of any scalar except null.
fn scalar_text(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<String> {
    match scalar(node) {
        Some((text, kind)) if kind != Scalar::Null => Some(text.to_owned()),
        _ => reader.type_mismatch("a string", node, path),
    }
}

impl FromNode for Quantity {
    fn from_node(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
        scalar_text(node, path, reader).map(Self)
    }
}

impl FromNode for Text {
    fn from_node(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
        scalar_text(node, path, reader).map(Self)
    }
}

/// Value of an environment variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EnvValue {
    Plain(String),
    From(EnvSource),
}

impl FromNode for EnvValue {
    fn from_node(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
        match &node.kind {
            Kind::Map(_) => EnvSource::from_node(node, path, reader).map(Self::From),
            Kind::Scalar { .. } | Kind::List(_) | Kind::Invalid => {
                scalar_text(node, path, reader).map(Self::Plain)
            }
        }
    }
}

models! {
    /// Source of a variable: either a Secret or a ConfigMap.
    #[derive(Eq)]
    EnvSource {
        /// A key of a Secret.
        secret: Option<KeyRef>,
        /// A key of a ConfigMap.
        config_map: Option<KeyRef>,
    }
    => rejected {
        "valueFrom" => "set secret or configMap directly, with name and key",
        "value" => "set the variable to the value itself",
    }

    /// A key of a Secret or ConfigMap.
    #[derive(Eq)]
    KeyRef {
        /// Name of the Secret or ConfigMap.
        name: String,
        /// Key within the Secret or ConfigMap.
        key: String,
        /// Whether the pod starts if the Secret or ConfigMap, or its key, does not exist.
        optional: bool,
    }

    /// A Secret or ConfigMap whose keys all become environment variables; set exactly one.
    EnvFrom {
        /// Name of a Secret.
        secret: Option<String>,
        /// Name of a ConfigMap.
        config_map: Option<String>,
        /// Prefix of the variable names.
        prefix: Option<String>,
        /// Whether the pod starts if the Secret or ConfigMap does not exist.
        optional: bool,
    }
}

string_enums! {
    /// Image pull policy of Kubernetes.
    PullPolicy {
        Always = "Always",
        #[default]
        IfNotPresent = "IfNotPresent",
        Never = "Never",
    }
}

models! {
    /// A volume mount with exactly one source.
    Volume {
        /// Absolute path in the container.
        mount_path: String,
        /// Path within the source to mount; by default all of it.
        sub_path: Option<String>,
        /// Mounts the volume read-only.
        read_only: bool,
        /// Name of a Secret.
        secret: Option<String>,
        /// Name of a ConfigMap.
        config_map: Option<String>,
        /// Name of a PersistentVolumeClaim.
        claim: Option<String>,
        /// Empty directory that is deleted with the pod.
        empty_dir: Option<EmptyDir>,
    }

    /// Empty directory that is deleted with the pod.
    EmptyDir {
        /// Maximum size, such as `1Gi`.
        size_limit: Option<Quantity>,
        /// Stores the directory in memory.
        in_memory: bool,
    }

    /// Security settings of a container.
    Security {
        /// Pod security standard; the default is RESTRICTED.
        level: Option<SecurityLevel>,
        /// Numeric user id to run as.
        run_as_user: Option<i64>,
    }
}

string_enums! {
    /// Pod security standard.
    SecurityLevel {
        /// No root user, capabilities or privilege escalation.
        #[default]
        Restricted = "RESTRICTED",
        /// For images that run as root.
        Baseline = "BASELINE",
    }
}

models! {
    /// Health check of a function.
    HealthCheck {
        /// HTTP path; by default the check only opens a TCP connection.
        path: Option<String>,
        /// Port of the check; the default is the port of the function.
        port: Option<i32>,
        /// Uses the gRPC health checking protocol.
        grpc: bool,
        /// Seconds until a container that has not started is restarted.
        startup_seconds: Option<i32>,
        /// Seconds between checks.
        period_seconds: Option<i32>,
        /// Timeout of a check in seconds.
        timeout_seconds: Option<i32>,
        /// Number of consecutive failures that mark the container unhealthy.
        failure_threshold: Option<i32>,
    }
}
