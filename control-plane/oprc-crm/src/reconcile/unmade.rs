//! Pods that can't be made, for a quota or an admission policy. A Deployment says so itself; of the
//! others their controllers tell by Events only.

use k8s_openapi::api::core::v1::Event;
use oprc_unit::truncate_message;

use crate::kinds::{JOB, Kind, STATEFUL_SET};

/// The Events that tell of it.
pub const EVENTS: &str = "reason=FailedCreate,type=Warning";

/// A workload whose pods can't be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Unmade {
    /// The workload's kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uid: String,
    /// Why, in one sentence.
    pub why: String,
}

/// What an Event tells of pods that can't be made.
pub fn unmade(event: &Event) -> Option<Unmade> {
    let of = &event.involved_object;
    let kind = [STATEFUL_SET, JOB].into_iter().find(|kind| {
        of.kind.as_deref() == Some(&*kind.kind)
            && of.api_version.as_deref() == Some(kind.api_version().as_str())
    })?;
    let (name, uid) = (of.name.clone()?, of.uid.clone()?);
    Some(Unmade { kind, name, uid, why: truncate_message(event.message.as_deref()?) })
}
