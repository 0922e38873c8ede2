//! Objects of a former shape keep serving for a while after their replacement is ready, until
//! clients know the new address.

use std::time::Duration;

use super::{platform_or, remaining, report::Facts};
use crate::crd::ClassRuntimeStatus;

/// The time until draining objects are deleted; none if there are none, or if their replacement
/// isn't ready.
pub(super) fn time_left(status: &ClassRuntimeStatus, facts: &Facts<'_>) -> Option<Duration> {
    let input = facts.input;
    let replaced = status.replaced.as_ref().filter(|_| !facts.changes.draining.is_empty())?;
    let spec = input.class.spec.as_ref().ok()?;
    let seconds = spec.rollout.as_ref().and_then(|it| it.drain_seconds);
    let left = remaining(replaced.since.0, platform_or(seconds, input.platform.drain), input.now);
    // The start must be stored before anything is deleted: the write may fail.
    let before = input.class.status.as_ref().and_then(|old| old.replaced.as_ref());
    let stored = before.is_some_and(|before| before.since == replaced.since);
    Some(if stored { left } else { left.max(Duration::from_millis(1)) })
}
