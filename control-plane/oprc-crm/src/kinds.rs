//! The kinds of objects that CRM works with, as `const` values, which `ApiResource` can't be.

use std::fmt;

use kube::core::ApiResource;

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Kind {
    /// Empty for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
}

impl Kind {
    const fn new([group, version, kind, plural]: [&'static str; 4]) -> Self {
        Self { group, version, kind, plural }
    }

    /// Whether CRM watches only objects with its label: others may be large, secret or many.
    pub fn is_watched_by_label(&self) -> bool {
        [CLAIM, CONFIG_MAP, SECRET].contains(self)
    }

    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    pub fn resource(&self) -> ApiResource {
        ApiResource {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            api_version: self.api_version(),
            kind: self.kind.to_owned(),
            plural: self.plural.to_owned(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.kind)
    }
}

pub const DEPLOYMENT: Kind = Kind::new(["apps", "v1", "Deployment", "deployments"]);
pub const STATEFUL_SET: Kind = Kind::new(["apps", "v1", "StatefulSet", "statefulsets"]);
pub const SERVICE: Kind = Kind::new(["", "v1", "Service", "services"]);
pub const CONFIG_MAP: Kind = Kind::new(["", "v1", "ConfigMap", "configmaps"]);
/// Watched without its data.
pub const SECRET: Kind = Kind::new(["", "v1", "Secret", "secrets"]);
pub const AUTOSCALER: Kind =
    Kind::new(["autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"]);
pub const DISRUPTION_BUDGET: Kind =
    Kind::new(["policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"]);
pub const JOB: Kind = Kind::new(["batch", "v1", "Job", "jobs"]);
pub const KNATIVE_SERVICE: Kind = Kind::new(["serving.knative.dev", "v1", "Service", "services"]);
pub const KNATIVE_REVISION: Kind =
    Kind::new(["serving.knative.dev", "v1", "Revision", "revisions"]);
/// A kind of the Prometheus Operator.
pub const SERVICE_MONITOR: Kind =
    Kind::new(["monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"]);
/// A kind of the Prometheus Operator.
pub const POD_MONITOR: Kind =
    Kind::new(["monitoring.coreos.com", "v1", "PodMonitor", "podmonitors"]);
pub const CLAIM: Kind = Kind::new(["", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"]);

/// Kinds that every cluster serves.
pub const BUILT_IN: [Kind; 7] =
    [DEPLOYMENT, STATEFUL_SET, SERVICE, CONFIG_MAP, AUTOSCALER, DISRUPTION_BUDGET, JOB];
