//! Which specification is reconciled: the latest, or the last one that was Available if the latest
//! missed its deadline or is rejected and the class wants a rollback.

use std::{borrow::Cow, time::Duration};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use oprc_unit::{Admitted, Rejection, UnitSpec, Violation};

use super::{Input, admission::admit, data_protection::with_nodes_kept, platform_or, remaining};
use crate::{crd::ClassRuntimeStatus, reason::Reason};

/// The specification to reconcile.
pub(super) struct Target<'a> {
    pub(super) latest: &'a UnitSpec,
    /// The deadline of the latest specification's rollout.
    pub(super) deadline: Duration,
    /// The latest specification, or an earlier one.
    pub(super) spec: Cow<'a, UnitSpec>,
    pub(super) admitted: Admitted,
    pub(super) rolled_back: bool,
    /// Why the latest is rejected, if an earlier one takes its place for that.
    pub(super) rejection: Option<Rejection>,
}

impl Target<'_> {
    /// The time until the deadline of a rollout.
    pub(super) fn time_left(
        &self,
        status: &ClassRuntimeStatus,
        now: Timestamp,
    ) -> Option<Duration> {
        status.progress_since.as_ref().map(|since| remaining(since.0, self.deadline, now))
    }

    pub(super) fn is_overdue(&self, status: &ClassRuntimeStatus, now: Timestamp) -> bool {
        self.time_left(status, now).is_some_and(|left| left.is_zero())
    }
}

pub(super) fn target<'a>(input: &Input<'a>) -> Result<Target<'a>, Rejection> {
    let class = input.class;
    let old = class.status.as_ref();
    let unreadable = |violation: &Violation| Rejection::invalid(vec![violation.clone()]);
    let latest = class.spec.as_ref().map_err(unreadable)?;
    let seconds = latest.rollout.as_ref().and_then(|it| it.progress_deadline_seconds);
    let deadline = platform_or(seconds, input.platform.progress_deadline);
    let target = |(spec, admitted), rolled_back, rejection| {
        Ok(Target { latest, deadline, spec, admitted, rolled_back, rejection })
    };
    // A generation that missed its deadline stays rolled back while it is the latest, and while
    // the earlier one is admitted.
    let back = old
        .filter(|old| old.rolled_back == Some(class.generation))
        .and_then(|old| last_available(input, old)?.ok());
    if let Some(back) = back {
        return target(back, true, None);
    }
    let former = class.selection_of(class.generation);
    let identity = class.identity(latest, class.generation);
    match admit(identity, latest, input.platform, old, former) {
        Ok(admitted) => target((Cow::Borrowed(latest), admitted), false, None),
        Err(mut rejection) => match replacement(input, &mut rejection) {
            Some(back) => target(back, true, Some(rejection)),
            None => Err(rejection),
        },
    }
}

/// An earlier specification, admitted anew.
type Earlier = (Cow<'static, UnitSpec>, Admitted);

/// The specification that was Available last, if there is one, admitted anew.
fn last_available(
    input: &Input<'_>,
    old: &ClassRuntimeStatus,
) -> Option<Result<Earlier, Rejection>> {
    let last = old.last_available.as_ref()?;
    let mut spec = last.spec.clone();
    with_nodes_kept(&mut spec, old);
    // The stored selection: that in `status.selection` may be the failed generation's.
    let reported = || input.class.selection_of(last.generation);
    let former = last.selection.as_ref().or_else(reported);
    let identity = input.class.identity(&spec, last.generation);
    let admitted = admit(identity, &spec, input.platform, input.class.status.as_ref(), former);
    Some(admitted.map(|admitted| (Cow::Owned(spec), admitted)))
}

/// What runs in place of a rejected specification. It isn't stored: the latest is tried again in
/// each reconcile.
fn replacement(input: &Input<'_>, rejection: &mut Rejection) -> Option<Earlier> {
    let old = input.class.status.as_ref()?;
    let last = rollback_generation(input, old)?;
    match last_available(input, old)? {
        Ok(back) => Some(back),
        Err(why) => {
            rejection.message.push_str(&rollback_impossible(last, &why));
            None
        }
    }
}

/// The earlier generation that a rollback leads to, if the class wants one.
fn rollback_generation(input: &Input<'_>, status: &ClassRuntimeStatus) -> Option<i64> {
    let latest = input.class.spec.as_ref().ok()?;
    let wanted = latest.rollout.as_ref().is_some_and(|it| it.rollback) && !latest.paused;
    let last = status.last_available.as_ref()?.generation;
    (wanted && last < input.class.generation).then_some(last)
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
    input: &Input<'_>,
) {
    let overdue = target.is_overdue(status, input.now);
    if !overdue || status.rolled_back.is_some() || target.rejection.is_some() {
        return;
    }
    let Some(last) = rollback_generation(input, status) else { return };
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
