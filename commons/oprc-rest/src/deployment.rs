//! Deployments, their status and their revisions.

use oprc_models::OClassDeployment;

use crate::{Plan, UnitStatus, document, string_enum};

string_enum! {
    /// Condition of a deployment: the summary state of all of its units. PENDING: stored, but not sent
    /// to any cluster yet. DEPLOYING: being rolled out. RUNNING: all units are Available. PARTIAL: some
    /// units are Available, others failed or are unreachable. DOWN: all units failed or are
    /// unreachable. ROLLING_BACK: the rollout failed, and the previous revision is being restored.
    /// ROLLED_BACK: the rollout failed, and the previous revision was restored. DELETING: being
    /// deleted. DELETED: deleted.
    pub enum DeploymentCondition {
        /// Stored, but not sent to any cluster yet.
        #[default]
        Pending,
        /// Being rolled out.
        Deploying,
        /// All units are Available.
        Running,
        /// Some units are Available, others failed or are unreachable.
        Partial,
        /// All units failed or are unreachable.
        Down,
        /// The rollout failed, and the previous revision is being restored.
        RollingBack,
        /// The rollout failed, and the previous revision was restored.
        RolledBack,
        /// Being deleted.
        Deleting,
        /// Deleted.
        Deleted,
    }
}

document! {
    /// A deployment. The ETag is the revision.
    pub struct Deployment {
        /// Specification of the deployment.
        pub deployment: OClassDeployment,
        /// Revision, which changes with each change of the specification.
        pub revision: String,
        /// Creation time.
        pub created_at: String,
        /// Time of the last change of the specification.
        pub updated_at: String,
        /// Caller who changed it last, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub updated_by: Option<String>,
        /// Plan that is rolled out.
        pub plan: Plan,
        /// Observed status.
        pub status: DeploymentStatus,
    }

    /// Observed status of a deployment.
    pub struct DeploymentStatus {
        /// Summary state of the deployment.
        pub condition: DeploymentCondition,
        /// Human-readable explanation of the condition.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub message: String,
        /// Revision that the status is about.
        pub revision: String,
        /// Time of the last change of the condition.
        pub since: String,
        /// Number of Available units.
        pub available: usize,
        /// Number of units.
        pub units_total: usize,
        /// Status of each unit.
        pub units: Vec<UnitStatus>,
    }

    /// A revision of a deployment.
    pub struct Revision {
        /// Revision.
        pub revision: String,
        /// Creation time.
        pub at: String,
        /// Caller who created it, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub by: Option<String>,
        /// Cause: `created`, `updated`, `adopted` or `rollback to …`.
        pub cause: String,
        /// Version of the package.
        pub version: String,
        /// Specification of the deployment.
        pub deployment: OClassDeployment,
        /// Outcome of the rollout, if known.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub outcome: String,
    }

    /// A request to roll back.
    pub struct Rollback {
        /// Revision to roll back to; default: the previous one.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub revision: Option<String>,
    }
}
