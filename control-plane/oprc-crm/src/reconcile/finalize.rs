//! Deletion of a class: its objects are deleted first, and the finalizer is removed when they are
//! gone.

use std::{sync::Arc, time::Duration};

use oprc_unit::{names, spec::OnDelete};

use super::{
    Action, Decision, FINALIZER, Input, ObservedClass, readiness, remaining, report, write_status,
};

/// How long the status of a terminating class doesn't name the objects that it waits for.
const QUIET_PERIOD: Duration = Duration::from_secs(20);
/// How many of them the status names.
const MAX_NAMED: usize = 10;

pub(super) fn has_finalizer(class: &ObservedClass) -> bool {
    class.finalizers.iter().any(|it| it == FINALIZER)
}

pub(super) fn plan_deletion(input: &Input<'_>) -> Decision {
    let class = input.class;
    if !has_finalizer(class) {
        return Decision::default();
    }
    let mut left = input.view.owned(&class.namespace, &class.uid);
    if deletes_claims(class) {
        left.extend(readiness::claims(input.view, &class.namespace, &names::base(&class.name)));
    }
    if left.is_empty() {
        return Decision { actions: vec![Action::RemoveFinalizer], ..Decision::default() };
    }
    let mut actions = Vec::new();
    if input.failures.is_empty() {
        let live = left.iter().filter(|child| !child.deleting);
        actions.extend(live.map(|child| Action::Delete(Arc::clone(child))));
    }
    let since = class.deleting.unwrap_or(input.now);
    let quiet = remaining(since, QUIET_PERIOD, input.now);
    let message = if let Some(failure) = report::join(input.failures) {
        format!("{}: {}", failure.reason, failure.message)
    } else if quiet.is_zero() {
        let names = left.iter().map(|child| format!("{} {}", child.kind, child.name));
        format!("waiting for deletion of {}", names.take(MAX_NAMED).collect::<Vec<_>>().join(", "))
    } else {
        "the objects of the class are being deleted".to_owned()
    };
    let mut status = report::carried(class);
    status.mark_deleting(&message, input.now);
    write_status(&mut actions, input, status, None, false);
    let requeue_after = (!quiet.is_zero()).then_some(quiet);
    Decision { actions, requeue_after, ..Decision::default() }
}

fn deletes_claims(class: &ObservedClass) -> bool {
    let retention = class.spec.as_ref().ok().and_then(|spec| spec.data_retention.as_ref());
    retention.is_some_and(|it| it.on_delete == OnDelete::Delete)
}
