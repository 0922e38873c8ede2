//! What is kept in the store, and under which keys.
//!
//! | key | what |
//! | --- | --- |
//! | `package/NAME` | [`PackageHead`]: which versions there are; whoever publishes, deletes or comes to use one writes it, if only as it is |
//! | `version/NAME/VERSION` | [`oprc_rest::PackageVersion`], never changed but for its deprecation |
//! | `deployment/KEY` | [`DeploymentRecord`] |
//! | `revision/KEY/REVISION` | [`oprc_rest::Revision`], the latest [`REVISIONS`] of each deployment |
//! | `deployment-unit/CLUSTER/ID` | [`UnitRecord`] |
//!
//! Deployments and units begin with the same word, so that one watch tells of both together.

use std::collections::BTreeMap;

use bytes::Bytes;
use oprc_models::OClassDeployment;
use oprc_rest::Plan;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::error::Error;

/// How many revisions of a deployment are kept.
pub const REVISIONS: usize = 50;
/// How many units a deployment may have: all of them are written in one transaction.
pub const UNITS: usize = 80;

/// Which versions of a package there are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PackageHead {
    /// All of them, and why those that shouldn't be used any more shouldn't.
    pub versions: BTreeMap<String, Option<String>>,
}

/// A deployment: what is wanted, and where it is on its way there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeploymentRecord {
    /// What is wanted.
    pub deployment: OClassDeployment,
    /// The revision: a new one with each change of what is wanted.
    pub revision: String,
    /// When it was first made.
    pub created_at: String,
    /// When what is wanted changed last.
    pub updated_at: String,
    /// Who changed it last.
    pub updated_by: Option<String>,
    /// The call that changed it last.
    pub correlation_id: String,
    /// The plan that is driven.
    pub plan: Plan,
    /// Where it is on its way.
    pub stage: Stage,
    /// What was driven before this revision, until this one has succeeded: what it goes back to,
    /// where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<Former>,
}

/// What was driven before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Former {
    /// Its revision.
    pub revision: String,
    /// What was wanted.
    pub deployment: OClassDeployment,
    /// Its plan.
    pub plan: Plan,
}

impl Former {
    /// A deployment as it is driven now.
    pub fn of(record: &DeploymentRecord) -> Self {
        Self {
            revision: record.revision.clone(),
            deployment: record.deployment.clone(),
            plan: record.plan.clone(),
        }
    }
}

/// Where a deployment is on its way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "stage")]
pub enum Stage {
    /// Clusters are brought to it since then.
    Driving {
        /// Since when.
        since: String,
    },
    /// All of it was Available once: from here on it is kept so.
    Settled {
        /// Since when.
        since: String,
    },
    /// It failed, all or nothing, and clusters are brought back to what was before.
    RollingBack {
        /// Since when.
        since: String,
        /// Why.
        because: String,
    },
    /// They are back.
    RolledBack {
        /// Since when.
        since: String,
        /// Why.
        because: String,
    },
    /// It is being taken away.
    Deleting {
        /// Since when.
        since: String,
    },
}

/// One unit that a cluster is to have, or to have no more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnitRecord {
    /// The deployment; none, as an empty text, for an orphan that is to go.
    pub deployment: String,
    /// The revision that wants it so.
    pub revision: String,
    /// The class.
    pub class: String,
    /// The environment.
    pub environment: String,
    /// The namespace; empty for the cluster's own default.
    pub namespace: String,
    /// What the cluster is to have; none where it is to have it no more. The record of one that is
    /// gone from the cluster is deleted.
    pub spec: Option<serde_json::Value>,
    /// What the cluster said when it took that, where it has: the object's uid and generation. What
    /// differs from this was changed by somebody else, and is sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<Taken>,
    /// The correlation id of what asked for it.
    pub correlation_id: String,
}

impl UnitRecord {
    /// The namespace that it is in; empty where only the cluster knows yet.
    pub fn place(&self) -> &str {
        match &self.taken {
            Some(taken) if self.namespace.is_empty() => &taken.namespace,
            _ => &self.namespace,
        }
    }
}

/// What a cluster said when it took a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The revision that it took.
    pub revision: String,
    /// The object.
    pub uid: String,
    /// Its generation.
    pub generation: i64,
    /// Where it is: a copy of it elsewhere isn't it. Empty where that wasn't noted yet.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// The key of a package's head.
pub fn package(name: &str) -> String {
    format!("package/{name}")
}

/// The key of a version.
pub fn version(name: &str, version: &str) -> String {
    format!("version/{name}/{version}")
}

/// The key of a deployment.
pub fn deployment(key: &str) -> String {
    format!("deployment/{key}")
}

/// The key of a revision.
pub fn revision(key: &str, revision: &str) -> String {
    format!("revision/{key}/{revision}")
}

/// The key of a unit.
pub fn unit(cluster: &str, id: &str) -> String {
    format!("deployment-unit/{cluster}/{id}")
}

/// Reads what is kept.
pub fn read<T: DeserializeOwned>(key: &str, value: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(value)
        .map_err(|error| Error::Internal(format!("{key} in the store can't be read: {error}")))
}

/// Writes what is to be kept.
pub fn write(value: &impl Serialize) -> Result<Bytes, Error> {
    serde_json::to_vec(value)
        .map(Bytes::from)
        .map_err(|error| Error::Internal(format!("can't be written: {error}")))
}
