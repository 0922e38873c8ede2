//! A class that is going: what was made for it goes first, and it waits for that.

use oprc_unit::{names, spec::OnDelete};
use std::{sync::Arc, time::Duration};

use super::{Action, Decision, FINALIZER, Input, components, report, tell};
use crate::crd::Phase;

/// How long a class may be going before its status says what it waits for.
const PATIENCE: Duration = Duration::from_secs(20);

/// Takes down a class that is going.
pub(super) fn decide(input: &Input<'_>) -> Decision {
    let class = input.class;
    let mut actions = Vec::new();
    if !class.finalizers.iter().any(|it| it == FINALIZER) {
        return Decision { phase: Phase::Deleting, ..Decision::default() };
    }
    let children = input.sight.owned(&class.namespace, &class.uid);
    let delete_claims = class.spec.as_ref().is_ok_and(|spec| {
        spec.data_retention.as_ref().is_some_and(|it| it.on_delete == OnDelete::Delete)
    });
    let claims = if delete_claims {
        components::claims(input.sight, &class.namespace, &names::base(&class.name))
    } else {
        Vec::new()
    };
    let mut left: Vec<String> = Vec::new();
    for child in children.iter().chain(&claims) {
        left.push(format!("{} {}", child.kind, child.name));
        if !child.deleting {
            actions.push(Action::Delete(Arc::clone(child)));
        }
    }
    if left.is_empty() {
        actions.push(Action::RemoveFinalizer);
        return Decision { actions, phase: Phase::Deleting, ..Decision::default() };
    }
    let since = class.deleting.unwrap_or(input.now);
    let patience = report::remaining(since, PATIENCE, input.now);
    let message = if let Some((reason, message)) = report::all(input.failures) {
        format!("{reason}: {message}")
    } else if patience.is_zero() {
        left.truncate(10);
        format!("waits until these are gone: {}", left.join(", "))
    } else {
        "everything that was made for it is being deleted".to_owned()
    };
    let status = report::deleting(class.status.as_ref(), class.generation, &message, input.now);
    if !input.failures.is_empty() {
        actions.clear();
    }
    if status.worth_writing_over(class.status.as_ref()) {
        tell(&mut actions, input, status, None);
    }
    let requeue_after = (!patience.is_zero()).then_some(patience);
    Decision { actions, requeue_after, phase: Phase::Deleting, template: None }
}
