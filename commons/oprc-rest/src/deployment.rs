//! Deployments: what is wanted, how it is, and what was.

use oprc_models::OClassDeployment;

use crate::{Plan, UnitStatus, document, words};

words! {
    /// How a deployment is, as decided by the one table of states.
    pub enum DeploymentCondition {
        /// Nothing was sent anywhere yet.
        #[default]
        Pending,
        /// Clusters are being brought to it.
        Deploying,
        /// All of its classes are Available.
        Running,
        /// Some of its classes are Available, others can't be for now.
        Partial,
        /// It failed, and stays as it is.
        Down,
        /// It failed, and what was before is brought back.
        RollingBack,
        /// It failed, and what was before is back.
        RolledBack,
        /// It is being taken away.
        Deleting,
        /// It is gone.
        Deleted,
    }
}

document! {
    /// A deployment. Its ETag is its revision.
    pub struct Deployment {
        /// What is wanted.
        pub deployment: OClassDeployment,
        /// The revision: a new one with each change of what is wanted.
        pub revision: String,
        /// When it was first made.
        pub created_at: String,
        /// When what is wanted changed last.
        pub updated_at: String,
        /// Who changed it last, where that is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub updated_by: Option<String>,
        /// The plan that is driven.
        pub plan: Plan,
        /// How it is.
        pub status: DeploymentStatus,
    }

    /// How a deployment is.
    pub struct DeploymentStatus {
        /// In a word.
        pub condition: DeploymentCondition,
        /// In a sentence.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub message: String,
        /// The revision that this is about.
        pub revision: String,
        /// Since when it is so.
        pub since: String,
        /// How many of its units are Available.
        pub available: usize,
        /// How many there are.
        pub units_total: usize,
        /// Its units.
        pub units: Vec<UnitStatus>,
    }

    /// What was wanted at some time.
    pub struct Revision {
        /// The revision.
        pub revision: String,
        /// When.
        pub at: String,
        /// By whom, where that is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub by: Option<String>,
        /// Why: `created`, `updated`, `rollback to …`.
        pub cause: String,
        /// The package's version.
        pub version: String,
        /// What was wanted.
        pub deployment: OClassDeployment,
        /// What became of it, where that is known.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub outcome: String,
    }

    /// A request to go back.
    pub struct Rollback {
        /// The revision to go back to; the one before the latest, where left out.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub revision: Option<String>,
    }
}
