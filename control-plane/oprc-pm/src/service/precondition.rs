//! Writes that hold only for one state of a deployment (`If-Match`, `If-None-Match`).

use crate::{error::Error, rollout::DeploymentRecord, state::Versioned};

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
        if let Self::Revision(revision) = self { Some(revision) } else { None }
    }

    /// `Exists` is pinned to the revision found now, so that the write fails if it changes.
    pub(super) fn pinned(&self, found: Option<Versioned<DeploymentRecord>>) -> Self {
        match (self, found) {
            (Self::Exists, Some(found)) => Self::Revision(found.record.revision.clone()),
            _ => self.clone(),
        }
    }

    pub(super) fn check(&self, found: Option<&Versioned<DeploymentRecord>>) -> Result<(), Error> {
        match (self, found.map(|stored| stored.record.as_ref())) {
            (Self::Absent, Some(record)) => {
                let key = &record.deployment.key;
                let detail = format!("the deployment {key:?} already exists");
                Err(Error::conflict("EXISTS", detail, &[key]))
            }
            (Self::Exists | Self::Revision(_), None) => Err(Error::Changed("none".to_owned())),
            (Self::Revision(revision), Some(record)) if record.revision != *revision => {
                Err(Error::Changed(record.revision.clone()))
            }
            _ => Ok(()),
        }
    }
}
