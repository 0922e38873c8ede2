//! Writes that hold only for one state of a deployment (`If-Match`, `If-None-Match`).

use oprc_models::OClassDeployment;
use oprc_rest::{Deployment, Plan};

use super::{Caller, DeploymentService};
use crate::error::Error;

/// What a write requires of the stored deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Precondition {
    #[default]
    None,
    Absent,
    Exists,
    Revision(String),
}

impl Precondition {
    pub fn revision(&self) -> Option<&str> {
        match self {
            Self::Revision(revision) => Some(revision),
            Self::None | Self::Absent | Self::Exists => None,
        }
    }
}

impl DeploymentService {
    /// Creates or updates a deployment; true if it was created.
    pub async fn upsert(
        &self,
        deployment: OClassDeployment,
        precondition: &Precondition,
        caller: &Caller,
    ) -> Result<(Deployment, bool), Error> {
        if *precondition == Precondition::Absent {
            return Ok((self.create(deployment, caller).await?, true));
        }
        let revision = self.required_revision(&deployment.key, precondition)?;
        self.put(deployment, revision.as_deref(), caller).await
    }

    /// The plan that [`Self::upsert`] would store, or the error it would return.
    pub async fn plan_upsert(
        &self,
        deployment: &OClassDeployment,
        precondition: &Precondition,
        caller: &Caller,
    ) -> Result<Plan, Error> {
        let revision = self.required_revision(&deployment.key, precondition)?;
        let absent = *precondition == Precondition::Absent;
        self.dry_run(deployment, revision.as_deref(), absent, caller).await
    }

    /// `Exists` is pinned to the revision found now, so that the write fails if it changes.
    fn required_revision(
        &self,
        key: &str,
        precondition: &Precondition,
    ) -> Result<Option<String>, Error> {
        match precondition {
            Precondition::Exists => match self.get(key) {
                Ok(found) => Ok(Some(found.revision)),
                Err(_) => Err(Error::Changed("none".to_owned())),
            },
            _ => Ok(precondition.revision().map(str::to_owned)),
        }
    }
}
