//! What classes meet: the environment's limits and defaults, and what the cluster can do.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::spec::Resources;

/// Sizes and defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// A developer's machine.
    #[default]
    Dev,
    /// Scarce resources.
    Edge,
    /// Production.
    Full,
}

impl Profile {
    /// All names, the aliases included.
    pub const NAMES: [&'static str; 5] = ["dev", "edge", "full", "prod", "cloud"];

    /// The profile of that name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "dev" => Some(Self::Dev),
            "edge" => Some(Self::Edge),
            "full" | "prod" | "cloud" => Some(Self::Full),
            _ => None,
        }
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Edge => "edge",
            Self::Full => "full",
        }
    }

    /// How many instances a function has that doesn't say.
    pub fn function_replicas(self) -> i32 {
        match self {
            Self::Dev => 1,
            Self::Edge => 2,
            Self::Full => 3,
        }
    }
}

/// What is switched on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// The data grid.
    pub odgm: bool,
    /// Autoscalers.
    pub hpa: bool,
    /// Knative.
    pub knative: bool,
}

/// The least latency that each template can promise, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Floors {
    /// Of a plain workload.
    pub k8s_deployment: i32,
    /// Of Knative that never scales to nothing.
    pub knative_warm: i32,
    /// Of Knative that does.
    pub knative_cold: i32,
}

impl Default for Floors {
    fn default() -> Self {
        Self { k8s_deployment: 1, knative_warm: 10, knative_cold: 3000 }
    }
}

/// Requests and limits of a container that doesn't say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sizes {
    /// What it asks for.
    pub requests: Resources,
    /// What it may not exceed.
    pub limits: Resources,
}

impl Sizes {
    fn of(requests: (&str, &str), limits: (&str, &str)) -> Self {
        let both = |(cpu, memory): (&str, &str)| Resources {
            cpu: Some(cpu.to_owned()),
            memory: Some(memory.to_owned()),
            ephemeral_storage: None,
        };
        Self { requests: both(requests), limits: both(limits) }
    }
}

/// Images of the data grid for classes that don't name one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OdgmImages {
    /// The one for every profile, where one is configured.
    pub any: Option<String>,
}

impl OdgmImages {
    /// The image for a profile.
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

/// What classes meet: limits, features and defaults, and what the cluster can do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Platform {
    /// The profile of this CRM.
    pub profile: Profile,
    /// What is switched on.
    pub features: Features,
    /// Whether the cluster has Knative Serving.
    pub knative: bool,
    /// Whether the cluster has the autoscaling API and a source of resource metrics.
    pub autoscaling: bool,
    /// What templates can promise.
    pub floors: Floors,
    /// The longest time that Knative gives a call.
    #[serde(rename = "knative_timeout_seconds", with = "seconds")]
    pub knative_timeout: Duration,
    /// The template where nothing speaks for any.
    pub default_template: Option<String>,
    /// How long a class may take to become Available.
    #[serde(rename = "progress_deadline_seconds", with = "seconds")]
    pub progress_deadline: Duration,
    /// How long what a change of template replaces goes on answering.
    #[serde(rename = "drain_seconds", with = "seconds")]
    pub drain: Duration,
    /// Functions that don't say.
    pub function_sizes: Sizes,
    /// Data grid nodes that don't say.
    pub odgm_sizes: Sizes,
    /// Images of the data grid.
    pub odgm_images: OdgmImages,
    /// The disk of each node of a persistent data grid.
    pub odgm_disk: String,
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
        }
    }

    /// Whether Knative is detected and switched on.
    pub fn can_knative(&self) -> bool {
        self.knative && self.features.knative
    }

    /// Whether autoscalers scale: they are switched on, and the cluster has what they need.
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
