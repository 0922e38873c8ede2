//! The stored state of deployments and their units. Serialised names are part of the store's format.

use jiff::Timestamp;
use oprc_models::OClassDeployment;
use oprc_rest::{Plan, UnitPlan};
use serde::{Deserialize, Serialize};

/// Maximum units of a deployment: all of them are written in one transaction.
pub const MAX_UNITS: usize = 80;

/// Cluster and unit id.
pub type UnitKey = (String, String);

pub fn planned_key(unit: &UnitPlan) -> UnitKey {
    (unit.cluster.clone(), unit.id.clone())
}

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
    /// The only place where the specs of its units are stored.
    pub plan: Plan,
    pub stage: Stage,
    pub stage_since: Timestamp,
    /// The revision to roll back to, kept until this one has succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<FormerRevision>,
}

impl DeploymentRecord {
    pub fn is_deleting(&self) -> bool {
        self.stage == Stage::Deleting
    }

    /// Revision and plan that clusters run: after a rollback the former ones.
    pub fn running(&self) -> Option<(&str, &Plan)> {
        match self.stage {
            Stage::RollingBack { .. } | Stage::RolledBack { .. } => {
                self.former.as_ref().map(|former| (former.revision.as_str(), &former.plan))
            }
            Stage::RollingOut | Stage::Succeeded | Stage::Deleting => {
                Some((&self.revision, &self.plan))
            }
        }
    }

    /// Revision and plan that clusters are driven to; none if all units are deleted.
    pub fn desired(&self) -> Option<(&str, &Plan)> {
        self.running().filter(|_| !self.is_deleting())
    }

    /// The plan of a unit that is desired with this revision.
    pub fn planned_unit(&self, key: &UnitKey, revision: &str) -> Option<&UnitPlan> {
        let (_, plan) = self.desired().filter(|(desired, _)| *desired == revision)?;
        plan.units.iter().find(|unit| unit.cluster == key.0 && unit.id == key.1)
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
    pub plan: Plan,
}

impl FormerRevision {
    pub fn of(record: &DeploymentRecord) -> Self {
        Self { revision: record.revision.clone(), plan: record.plan.clone() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "stage")]
pub enum Stage {
    RollingOut,
    /// All units were Available at the same time once.
    Succeeded,
    /// An all-or-nothing rollout failed; clusters return to the former revision.
    RollingBack {
        because: String,
    },
    RolledBack {
        because: String,
    },
    Deleting,
}

/// Whether one unit is desired on its cluster, and what the cluster has acknowledged. Its spec is in the
/// deployment's plan of the same revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitRecord {
    /// Empty for an orphan that is being deleted.
    pub deployment: String,
    pub revision: String,
    pub class: String,
    pub environment: String,
    /// Empty for the cluster's default namespace.
    pub namespace: String,
    /// False where the unit must be deleted from the cluster; the record is deleted afterwards.
    pub desired: bool,
    /// The object that the cluster reported when it accepted the unit. An object that differs from
    /// it was changed by another client, and the unit is sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Acknowledged>,
    pub correlation_id: String,
}

impl UnitRecord {
    /// A desired unit that its cluster hasn't acknowledged yet.
    pub fn planned(deployment: &DeploymentRecord, revision: &str, unit: &UnitPlan) -> Self {
        Self {
            deployment: deployment.deployment.key.clone(),
            revision: revision.to_owned(),
            class: unit.class.clone(),
            environment: unit.environment.clone(),
            namespace: unit.namespace.clone(),
            desired: true,
            acknowledged: None,
            correlation_id: deployment.correlation_id.clone(),
        }
    }

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
    pub namespace: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn stored_names_are_stable() {
        let stored = json!({"stage": "rolling_back", "because": "no"});
        let stage: Stage = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(stage, Stage::RollingBack { because: "no".to_owned() });
        assert_eq!(serde_json::to_value(&stage).unwrap(), stored);
        let stored = json!({
            "deployment": "d", "revision": "r", "class": "A", "environment": "", "namespace": "",
            "desired": true, "correlation_id": "",
            "acknowledged": {"revision": "r", "uid": "u", "generation": 2, "namespace": "n"},
        });
        let unit: UnitRecord = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(unit.object_namespace(), "n");
        assert_eq!(serde_json::to_value(&unit).unwrap(), stored);
    }
}
