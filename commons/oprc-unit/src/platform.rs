//! Settings of a cluster's CRM and capabilities of the cluster.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::spec::Resources;

/// A set of default sizes and numbers of instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// For a developer's machine.
    #[default]
    Dev,
    /// For scarce resources.
    Edge,
    /// For production.
    Full,
}

impl Profile {
    /// All names, including aliases.
    pub const NAMES: [&'static str; 5] = ["dev", "edge", "full", "prod", "cloud"];

    /// Parses a name or alias.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "dev" => Some(Self::Dev),
            "edge" => Some(Self::Edge),
            "full" | "prod" | "cloud" => Some(Self::Full),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Edge => "edge",
            Self::Full => "full",
        }
    }

    /// The default number of instances of a function.
    pub fn function_replicas(self) -> i32 {
        match self {
            Self::Dev => 1,
            Self::Edge => 2,
            Self::Full => 3,
        }
    }
}

/// Features that are enabled in the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    pub odgm: bool,
    pub hpa: bool,
    pub knative: bool,
}

/// The minimum latency of each template, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Floors {
    pub k8s_deployment: i32,
    /// With at least one instance running.
    pub knative_warm: i32,
    /// Scaled to zero.
    pub knative_cold: i32,
}

impl Default for Floors {
    fn default() -> Self {
        Self { k8s_deployment: 1, knative_warm: 10, knative_cold: 3000 }
    }
}

/// Default requests and limits of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sizes {
    pub requests: Resources,
    pub limits: Resources,
}

impl Sizes {
    pub(crate) fn of(requests: (&str, &str), limits: (&str, &str)) -> Self {
        let both = |(cpu, memory): (&str, &str)| Resources {
            cpu: Some(cpu.to_owned()),
            memory: Some(memory.to_owned()),
            ephemeral_storage: None,
        };
        Self { requests: both(requests), limits: both(limits) }
    }
}

/// Default images of the data grid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OdgmImages {
    /// The configured image, for every profile.
    pub any: Option<String>,
}

impl OdgmImages {
    pub fn of(&self, profile: Profile) -> String {
        self.any.clone().unwrap_or_else(|| {
            let tag = match profile {
                Profile::Dev => "dev",
                Profile::Edge => "edge",
                Profile::Full => "latest",
            };
            format!("ghcr.io/pawissanutt/oprc-odgm:{tag}")
        })
    }
}

/// Settings of a CRM and detected capabilities of its cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Platform {
    pub profile: Profile,
    pub features: Features,
    /// Whether the cluster has Knative Serving.
    pub knative: bool,
    /// Whether the cluster has the autoscaling API and a source of resource metrics.
    pub autoscaling: bool,
    pub floors: Floors,
    /// Knative's maximum timeout of a call.
    #[serde(rename = "knative_timeout_seconds", with = "seconds")]
    pub knative_timeout: Duration,
    /// The template of classes for which no scored requirement is set.
    pub default_template: Option<String>,
    /// Time within which a class must become Available.
    #[serde(rename = "progress_deadline_seconds", with = "seconds")]
    pub progress_deadline: Duration,
    /// How long replaced workloads keep serving after a change of template.
    #[serde(rename = "drain_seconds", with = "seconds")]
    pub drain: Duration,
    pub function_sizes: Sizes,
    pub odgm_sizes: Sizes,
    pub odgm_images: OdgmImages,
    /// Volume size of each node of a persistent data grid.
    pub odgm_disk: String,
    /// Image of the proxy in front of functions. Also waits for the data grid, as an init container.
    pub proxy_image: String,
    /// The objects by which the Prometheus Operator finds metrics. None if there are to be none. PM
    /// doesn't need it.
    #[serde(skip)]
    pub monitors: Option<Monitors>,
    /// PM doesn't need it.
    #[serde(skip)]
    pub scaling: Scaling,
}

/// How functions are scaled at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaling {
    /// The highest number of instances that enforcement sets.
    pub max_instances: i32,
    /// The highest CPU and memory of an instance that enforcement sets.
    pub max_cpu_millis: u64,
    pub max_memory_bytes: u64,
    /// CPU utilisation that autoscalers keep, in percent of the request.
    pub cpu_percent: i32,
    /// How long autoscalers wait for a higher number to last.
    pub up_window: Duration,
    /// The largest steps of autoscalers in 15 seconds; the larger applies.
    pub up_percent: i32,
    pub up_pods: i32,
    /// How long autoscalers wait for a lower number to last.
    pub down_window: Duration,
    /// The largest step down of autoscalers in a minute.
    pub down_percent: i32,
}

impl Default for Scaling {
    fn default() -> Self {
        Self {
            max_instances: 50,
            max_cpu_millis: 4000,
            max_memory_bytes: 4 << 30,
            cpu_percent: 70,
            up_window: Duration::ZERO,
            up_percent: 100,
            up_pods: 4,
            down_window: Duration::from_mins(5),
            down_percent: 10,
        }
    }
}

/// Objects of the Prometheus Operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitors {
    pub kind: MonitorKind,
    /// Labels by which Prometheus selects them.
    pub labels: BTreeMap<String, String>,
    pub interval: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MonitorKind {
    Service,
    Pod,
}

impl Platform {
    /// The defaults of a profile.
    pub fn of(profile: Profile) -> Self {
        let function_sizes = match profile {
            Profile::Dev => Sizes::of(("50m", "64Mi"), ("500m", "512Mi")),
            Profile::Edge | Profile::Full => Sizes::of(("100m", "256Mi"), ("500m", "512Mi")),
        };
        let odgm_sizes = match profile {
            Profile::Dev => Sizes::of(("50m", "64Mi"), ("1", "1Gi")),
            Profile::Edge | Profile::Full => Sizes::of(("200m", "512Mi"), ("1", "1Gi")),
        };
        Self {
            profile,
            features: Features {
                odgm: profile == Profile::Full,
                hpa: profile == Profile::Full,
                knative: true,
            },
            knative: false,
            autoscaling: false,
            floors: Floors::default(),
            // Knative's own default, `max-revision-timeout-seconds`.
            knative_timeout: Duration::from_mins(10),
            default_template: None,
            progress_deadline: Duration::from_secs(match profile {
                Profile::Dev => 600,
                Profile::Edge => 300,
                Profile::Full => 180,
            }),
            drain: Duration::from_secs(10),
            function_sizes,
            odgm_sizes,
            odgm_images: OdgmImages { any: None },
            odgm_disk: "1Gi".to_owned(),
            proxy_image: concat!("ghcr.io/pawissanutt/oprc-proxy:", env!("CARGO_PKG_VERSION"))
                .to_owned(),
            monitors: None,
            scaling: Scaling::default(),
        }
    }

    /// Whether Knative is detected and enabled.
    pub fn can_knative(&self) -> bool {
        self.knative && self.features.knative
    }

    /// Whether autoscaling is detected and enabled.
    pub fn can_autoscale(&self) -> bool {
        self.autoscaling && self.features.hpa
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn autoscaling_needs_the_flag_and_the_cluster() {
        for (flag, detected) in [(true, true), (true, false), (false, true), (false, false)] {
            let mut platform = Platform::of(Profile::Full);
            platform.features.hpa = flag;
            platform.autoscaling = detected;
            assert_eq!(platform.can_autoscale(), flag && detected);
        }
    }
}

/// Durations as whole seconds.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        duration: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(duration.as_secs())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_secs)
    }
}
