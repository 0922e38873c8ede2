//! Pods that can't be created because of a quota or an admission policy. A Deployment reports that
//! in its status; for other workloads it is only in Events.

use k8s_openapi::api::core::v1::Event;
use oprc_unit::truncate_message;

use crate::kinds::{BUILT_IN, Kind};

/// The field selector of these Events.
pub const FAILED_CREATE_EVENTS: &str = "reason=FailedCreate,type=Warning";

/// A workload whose pods can't be created.
#[derive(Clone, Debug, PartialEq)]
pub struct PodCreationFailure {
    pub kind: Kind,
    pub name: String,
    pub uid: String,
    pub message: String,
}

pub fn pod_creation_failure(event: &Event) -> Option<PodCreationFailure> {
    let of = &event.involved_object;
    let kind = BUILT_IN.into_iter().find(|kind| {
        of.kind.as_deref() == Some(kind.kind)
            && of.api_version.as_ref() == Some(&kind.api_version())
    })?;
    let (name, uid) = (of.name.clone()?, of.uid.clone()?);
    let message = truncate_message(event.message.as_deref()?);
    Some(PodCreationFailure { kind, name, uid, message })
}
