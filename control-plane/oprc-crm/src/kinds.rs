//! Kinds of objects, as values: what is watched, compared and deleted can be of any kind.

use std::{borrow::Cow, fmt};

use kube::core::ApiResource;

/// A kind of object.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Kind {
    /// Its group; empty for the core group.
    pub group: Cow<'static, str>,
    /// Its version.
    pub version: Cow<'static, str>,
    /// Its name.
    pub kind: Cow<'static, str>,
    /// Its name in addresses.
    pub plural: Cow<'static, str>,
}

impl Kind {
    const fn new(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed(version),
            kind: Cow::Borrowed(kind),
            plural: Cow::Borrowed(plural),
        }
    }

    /// Group and version, as in an object's `apiVersion`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The same for the client.
    pub fn resource(&self) -> ApiResource {
        ApiResource {
            group: self.group.to_string(),
            version: self.version.to_string(),
            api_version: self.api_version(),
            kind: self.kind.to_string(),
            plural: self.plural.to_string(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.kind)
    }
}

/// A workload of pods that are all alike.
pub const DEPLOYMENT: Kind = Kind::new("apps", "v1", "Deployment", "deployments");
/// A workload of pods with names and disks of their own.
pub const STATEFUL_SET: Kind = Kind::new("apps", "v1", "StatefulSet", "statefulsets");
/// An address.
pub const SERVICE: Kind = Kind::new("", "v1", "Service", "services");
/// Scales a workload.
pub const AUTOSCALER: Kind =
    Kind::new("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers");
/// Keeps pods from being ended all at once.
pub const DISRUPTION_BUDGET: Kind =
    Kind::new("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets");
/// A run to completion.
pub const JOB: Kind = Kind::new("batch", "v1", "Job", "jobs");
/// A workload that Knative scales, down to nothing.
pub const KNATIVE_SERVICE: Kind = Kind::new("serving.knative.dev", "v1", "Service", "services");

/// A disk that outlives the pod that uses it.
pub const CLAIM: Kind = Kind::new("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims");

/// What every cluster has.
pub const BUILT_IN: [Kind; 6] =
    [DEPLOYMENT, STATEFUL_SET, SERVICE, AUTOSCALER, DISRUPTION_BUDGET, JOB];
