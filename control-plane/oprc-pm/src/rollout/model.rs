//! The stored state of deployments and their units. Serialised names are part of the store's
//! format: renamed fields and variants keep their old names there.

use jiff::Timestamp;
use oprc_models::OClassDeployment;
use oprc_rest::Plan;
use oprc_unit::{Capacity, UnitSpec};
use serde::{Deserialize, Serialize};

/// Maximum units of a deployment: all of them are written in one transaction.
pub const MAX_UNITS: usize = 80;

/// Cluster and unit id.
pub type UnitKey = (String, String);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeploymentRecord {
    pub deployment: OClassDeployment,
    /// A new one with each change of `deployment`.
    pub revision: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub updated_by: Option<String>,
    /// The request that changed `deployment` last.
    pub correlation_id: String,
    pub plan: Plan,
    pub stage: Stage,
    /// The revision to roll back to, kept until this one has succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<FormerRevision>,
}

impl DeploymentRecord {
    pub fn is_deleting(&self) -> bool {
        matches!(self.stage, Stage::Deleting { .. })
    }

    /// The plan that clusters run: after a rollback the former one.
    pub fn running_plan(&self) -> Option<&Plan> {
        match self.stage {
            Stage::RollingBack { .. } | Stage::RolledBack { .. } => {
                self.former.as_ref().map(|former| &former.plan)
            }
            Stage::RollingOut { .. } | Stage::Succeeded { .. } | Stage::Deleting { .. } => {
                Some(&self.plan)
            }
        }
    }

    /// Package and version of the plan and of the one that it may roll back to.
    pub fn used_versions(&self) -> impl Iterator<Item = (&str, &str)> {
        let former = self.former.as_ref().map(|former| &former.plan);
        let plans = std::iter::once(&self.plan).chain(former);
        plans.map(|plan| (plan.package.as_str(), plan.version.as_str()))
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FormerRevision {
    pub revision: String,
    pub deployment: OClassDeployment,
    pub plan: Plan,
}

impl FormerRevision {
    pub fn of(record: &DeploymentRecord) -> Self {
        Self {
            revision: record.revision.clone(),
            deployment: record.deployment.clone(),
            plan: record.plan.clone(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "stage")]
pub enum Stage {
    #[serde(rename = "driving")]
    RollingOut {
        since: Timestamp,
    },
    /// All units were Available at the same time once.
    #[serde(rename = "settled")]
    Succeeded {
        since: Timestamp,
    },
    /// An all-or-nothing rollout failed; clusters return to the former revision.
    RollingBack {
        since: Timestamp,
        because: String,
    },
    RolledBack {
        since: Timestamp,
        because: String,
    },
    Deleting {
        since: Timestamp,
    },
}

impl Stage {
    pub fn since(&self) -> Timestamp {
        match self {
            Self::RollingOut { since }
            | Self::Succeeded { since }
            | Self::RollingBack { since, .. }
            | Self::RolledBack { since, .. }
            | Self::Deleting { since } => *since,
        }
    }
}

/// The desired state of one unit on its cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnitRecord {
    /// Empty for an orphan that is being deleted.
    pub deployment: String,
    pub revision: String,
    pub class: String,
    pub environment: String,
    /// Empty for the cluster's default namespace.
    pub namespace: String,
    /// None where the unit must be deleted from the cluster; the record is deleted afterwards.
    pub spec: Option<UnitSpec>,
    /// What the unit requests of its cluster, by the plan.
    #[serde(default)]
    pub requested: Capacity,
    /// The object that the cluster reported when it accepted the unit. An object that differs from
    /// it was changed by another client, and the unit is sent again.
    #[serde(default, rename = "taken", skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Acknowledged>,
    pub correlation_id: String,
}

impl UnitRecord {
    /// The namespace of the unit's object; empty if only the cluster knows it yet.
    pub fn object_namespace(&self) -> &str {
        match &self.acknowledged {
            Some(acknowledged) if self.namespace.is_empty() => &acknowledged.namespace,
            _ => &self.namespace,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledged {
    pub revision: String,
    pub uid: String,
    pub generation: i64,
    /// Empty in records of versions that did not store it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_records_stored_with_the_former_names() {
        let stage: Stage = serde_json::from_value(
            json!({"stage": "driving", "since": "2026-11-16T10:20:30.120Z"}),
        )
        .unwrap();
        assert_eq!(stage.since().as_millisecond(), 1_794_824_430_120);
        assert!(matches!(stage, Stage::RollingOut { .. }));
        let stored = json!({"stage": "settled", "since": "2026-11-16T00:00:00Z"});
        let stage: Stage = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(serde_json::to_value(&stage).unwrap(), stored);
        let unit: UnitRecord = serde_json::from_value(json!({
            "deployment": "d", "revision": "r", "class": "A", "environment": "", "namespace": "",
            "spec": {}, "correlation_id": "", "taken": {"revision": "r", "uid": "u", "generation": 2},
        }))
        .unwrap();
        assert_eq!(unit.acknowledged.unwrap().generation, 2);
    }
}
