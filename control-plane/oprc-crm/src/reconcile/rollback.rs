//! Which specification is reconciled: the latest, or the last one that was Available if the latest
//! missed its deadline or is rejected and the class wants a rollback.

use std::{borrow::Cow, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use oprc_unit::{Rejection, SelectionStatus, UnitSpec, Violation};

use super::{
    Input,
    admission::{Admitted, admit},
    data_protection::with_nodes_kept,
    report,
};
use crate::{crd::ClassRuntimeStatus, reason::Reason};

/// The specification to reconcile.
pub(super) struct Target<'a> {
    pub(super) spec: Cow<'a, UnitSpec>,
    pub(super) admitted: Admitted,
    /// Whether it is an earlier one than the latest.
    pub(super) rolled_back: bool,
    /// Why the latest is rejected, if an earlier one takes its place for that.
    pub(super) rejection: Option<Rejection>,
}

pub(super) fn target<'a>(input: &Input<'_>, latest: &'a UnitSpec) -> Result<Target<'a>, Rejection> {
    let class = input.class;
    let old = class.status.as_ref();
    // A generation that missed its deadline stays rolled back while it is the latest, and while
    // the earlier one is admitted.
    let back = old
        .filter(|old| old.rolled_back == Some(class.generation))
        .and_then(|old| last_available(input, old)?.ok());
    if let Some(back) = back {
        return Ok(back);
    }
    let former = class.selection_of(class.generation);
    let identity = class.identity(latest, class.generation);
    match admit(identity, latest, input.platform, old, former) {
        Ok(admitted) => {
            let spec = Cow::Borrowed(latest);
            Ok(Target { spec, admitted, rolled_back: false, rejection: None })
        }
        Err(mut rejection) => match replacement(input, latest, &mut rejection) {
            Some(target) => Ok(Target { rejection: Some(rejection), ..target }),
            None => Err(rejection),
        },
    }
}

/// The specification that was Available last, if there is one, admitted anew.
fn last_available(
    input: &Input<'_>,
    old: &ClassRuntimeStatus,
) -> Option<Result<Target<'static>, Rejection>> {
    let last = old.last_available.as_ref()?;
    let mut spec = match serde_json::from_value::<UnitSpec>(last.spec.0.clone()) {
        Ok(spec) => spec,
        Err(error) => {
            let field = "status.last_available.spec".to_owned();
            let violation = Violation { field, message: error.to_string() };
            return Some(Err(Rejection::invalid(vec![violation])));
        }
    };
    with_nodes_kept(&mut spec, old);
    // The stored selection: that in `status.selection` may be the failed generation's.
    let reported = || input.class.selection_of(last.generation);
    let former: Option<&SelectionStatus> = last.selection.as_ref().or_else(reported);
    let identity = input.class.identity(&spec, last.generation);
    let old = input.class.status.as_ref();
    let admitted = admit(identity, &spec, input.platform, old, former);
    Some(admitted.map(|admitted| Target {
        spec: Cow::Owned(spec),
        admitted,
        rolled_back: true,
        rejection: None,
    }))
}

/// What runs in place of a rejected specification. It isn't stored: the latest is tried again in
/// each reconcile.
fn replacement(
    input: &Input<'_>,
    latest: &UnitSpec,
    rejection: &mut Rejection,
) -> Option<Target<'static>> {
    let old = input.class.status.as_ref()?;
    let last = old.last_available.as_ref().map(|last| last.generation);
    let allowed = wants_rollback(latest) && !latest.paused;
    let last = last.filter(|last| allowed && *last < input.class.generation)?;
    match last_available(input, old)? {
        Ok(target) => Some(target),
        Err(why) => {
            rejection.message.push_str(&rollback_impossible(last, &why));
            None
        }
    }
}

fn wants_rollback(spec: &UnitSpec) -> bool {
    spec.rollout.as_ref().is_some_and(|it| it.rollback)
}

fn rollback_impossible(generation: i64, rejection: &Rejection) -> String {
    format!("; rollback to generation {generation} isn't possible: {}", rejection.message)
}

/// Starts a rollback if the latest generation has missed its deadline, or reports why there is
/// none. It is stored in the status first and done in the next reconcile, so that it survives a
/// crash in between.
pub(super) fn start_if_overdue(
    status: &mut ClassRuntimeStatus,
    target: &Target<'_>,
    latest: &UnitSpec,
    deadline: Duration,
    input: &Input<'_>,
) {
    let overdue = report::time_left(status, deadline, input.now).is_some_and(|it| it.is_zero());
    let allowed = wants_rollback(latest) && !latest.paused;
    if !overdue || !allowed || status.rolled_back.is_some() || target.rejection.is_some() {
        return;
    }
    let last = status.last_available.as_ref().map(|last| last.generation);
    let Some(last) = last.filter(|last| *last < input.class.generation) else { return };
    match last_available(input, status) {
        Some(Ok(_)) => {
            status.rolled_back = Some(input.class.generation);
            status.progress_since = Some(Time(input.now));
        }
        Some(Err(rejection)) => {
            let reason = status.reason.as_deref().and_then(Reason::parse);
            let reason = reason.unwrap_or(Reason::ProgressDeadlineExceeded);
            let mut message = status.message.clone().unwrap_or_default();
            message.push_str(&rollback_impossible(last, &rejection));
            let serving = status.is_true(crate::crd::AVAILABLE);
            status.mark_degraded(reason, &message, serving, input.now);
        }
        None => {}
    }
}
