//! The kinds of objects that CRM works with, as `const` values, which `ApiResource` can't be.

use std::{borrow::Cow, fmt};

use kube::core::ApiResource;

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Kind {
    /// Empty for the core group.
    pub group: Cow<'static, str>,
    pub version: Cow<'static, str>,
    pub kind: Cow<'static, str>,
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

    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

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

pub const DEPLOYMENT: Kind = Kind::new("apps", "v1", "Deployment", "deployments");
pub const STATEFUL_SET: Kind = Kind::new("apps", "v1", "StatefulSet", "statefulsets");
pub const SERVICE: Kind = Kind::new("", "v1", "Service", "services");
pub const AUTOSCALER: Kind =
    Kind::new("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers");
pub const DISRUPTION_BUDGET: Kind =
    Kind::new("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets");
pub const JOB: Kind = Kind::new("batch", "v1", "Job", "jobs");
pub const KNATIVE_SERVICE: Kind = Kind::new("serving.knative.dev", "v1", "Service", "services");
pub const CLAIM: Kind = Kind::new("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims");

/// Kinds that every cluster serves.
pub const BUILT_IN: [Kind; 6] =
    [DEPLOYMENT, STATEFUL_SET, SERVICE, AUTOSCALER, DISRUPTION_BUDGET, JOB];
