//! What containers run with.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    fault::Path,
    macros::{model, words},
    quantity,
    text::{Kind, Node, Read, Reader, Scalar, scalar},
};

model! {
    /// What a container runs with. Goes into `functions[].image`, `port`, `health_check` and
    /// `provision`.
    Container {
        /// The image.
        image: Option<String>,
        /// The port that it listens on, 8080 unless said otherwise.
        port: Option<i32>,
        /// How many instances there are at least; 0 lets a template that can do it scale to nothing.
        min_scale: Option<i32>,
        /// How many instances there are at most.
        max_scale: Option<i32>,
        /// Processor time that an instance may not exceed, such as `500m`.
        cpu | "limitsCpu": Option<Amount>,
        /// Memory that an instance may not exceed, such as `256Mi`.
        memory | "limitsMemory": Option<Amount>,
        /// Disk space that goes with the pod, and that an instance may not exceed.
        ephemeral_storage: Option<Amount>,
        /// Processor time that an instance asks for.
        requests_cpu: Option<Amount>,
        /// Memory that an instance asks for.
        requests_memory: Option<Amount>,
        /// Disk space that an instance asks for.
        requests_ephemeral_storage: Option<Amount>,
        /// Environment variables: a value, or the key of a Secret or ConfigMap.
        env: BTreeMap<String, EnvValue>,
        /// Secrets and ConfigMaps all of whose keys become environment variables.
        env_from: Vec<EnvFrom>,
        /// When the image is pulled.
        pull_policy | "imagePullPolicy": Option<PullPolicy>,
        /// Secrets that the image is pulled with.
        pull_secrets | "imagePullSecrets": Vec<String>,
        /// The account that it runs under.
        service_account: Option<String>,
        /// What is mounted into it.
        volumes | "volumeMounts": Vec<Volume>,
        /// The program to run, in place of the image's own.
        command: Vec<Text>,
        /// Its arguments.
        args: Vec<Text>,
        /// What it may do.
        security: Option<Security>,
        /// How its health is asked for.
        health_check: Option<HealthCheck>,
    }
}

/// An amount of a resource, as Kubernetes writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Amount(pub String);

impl Amount {
    /// What it is worth, in processors or bytes; none where it is no amount.
    pub fn worth(&self) -> Option<f64> {
        quantity::worth(&self.0).ok()
    }
}

/// A text that may look like a number or a truth value: it is taken as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Text(pub String);

/// Whatever a scalar is, as it is written.
fn as_written(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<String> {
    match scalar(node) {
        Some((text, kind)) if kind != Scalar::Null => Some(text.to_owned()),
        _ => {
            reader.expected("text", node, path);
            None
        }
    }
}

impl Read for Amount {
    fn read(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
        as_written(node, path, reader).map(Self)
    }
}

impl Read for Text {
    fn read(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
        as_written(node, path, reader).map(Self)
    }
}

/// What an environment variable is set to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EnvValue {
    /// This.
    Plain(String),
    /// A key of a Secret or ConfigMap.
    From(EnvSource),
}

impl Read for EnvValue {
    fn read(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
        match &node.kind {
            Kind::Map(_) => EnvSource::read(node, path, reader).map(Self::From),
            Kind::Scalar { .. } | Kind::List(_) | Kind::Refused => {
                as_written(node, path, reader).map(Self::Plain)
            }
        }
    }
}

model! {
    /// Where the value of a variable comes from: one of the two.
    #[derive(Eq)]
    EnvSource {
        /// A key of a Secret.
        secret: Option<KeyRef>,
        /// A key of a ConfigMap.
        config_map: Option<KeyRef>,
    }
    refused {
        "valueFrom" => "is left out here: write secret or configMap with name and key",
        "value" => "is left out here: write the value itself",
    }
}

model! {
    /// A key of a Secret or ConfigMap.
    #[derive(Eq)]
    KeyRef {
        /// The object's name.
        name: String,
        /// The key.
        key: String,
        /// Whether the pod starts without it.
        optional: bool,
    }
}

model! {
    /// A Secret or ConfigMap all of whose keys become environment variables: one of the two.
    EnvFrom {
        /// The name of a Secret.
        secret: Option<String>,
        /// The name of a ConfigMap.
        config_map: Option<String>,
        /// What stands before each name.
        prefix: Option<String>,
        /// Whether the pod starts without it.
        optional: bool,
    }
}

words! {
    /// When an image is pulled, in Kubernetes' own words.
    PullPolicy {
        /// At each start.
        Always = "Always",
        /// Where it isn't there yet.
        #[default]
        IfNotPresent = "IfNotPresent",
        /// Never: it must be there.
        Never = "Never",
    }
}

model! {
    /// Something that is mounted into a container, from exactly one source.
    Volume {
        /// Where it is mounted.
        mount_path: String,
        /// Only this path of the source.
        sub_path: Option<String>,
        /// Whether it can't be written.
        read_only: bool,
        /// The name of a Secret.
        secret: Option<String>,
        /// The name of a ConfigMap.
        config_map: Option<String>,
        /// The name of a volume claim.
        claim: Option<String>,
        /// A folder that goes with the pod.
        empty_dir: Option<EmptyDir>,
    }
}

model! {
    /// A folder that goes with the pod.
    EmptyDir {
        /// How large it may become.
        size_limit: Option<Amount>,
        /// Whether it is kept in memory.
        in_memory: bool,
    }
}

model! {
    /// What a container may do.
    Security {
        /// The pod security standard that it keeps to, RESTRICTED unless said otherwise.
        level: Option<SecurityLevel>,
        /// The user that it runs as.
        run_as_user: Option<i64>,
    }
}

words! {
    /// A pod security standard.
    SecurityLevel {
        /// No root, no capabilities, no escalation.
        #[default]
        Restricted = "RESTRICTED",
        /// What the image asks for, for images that run as root.
        Baseline = "BASELINE",
    }
}

model! {
    /// How the health of a function is asked for.
    HealthCheck {
        /// The path to ask over HTTP; left out, being reached is healthy.
        path: Option<String>,
        /// The port to ask, the function's own unless said otherwise.
        port: Option<i32>,
        /// Whether gRPC's health protocol is spoken.
        grpc: bool,
        /// How long the function may take to start before it is ended.
        startup_seconds: Option<i32>,
        /// How often is asked.
        period_seconds: Option<i32>,
        /// How long an answer may take.
        timeout_seconds: Option<i32>,
        /// How often in a row it may fail.
        failure_threshold: Option<i32>,
    }
}
