//! Raises that the cluster can't schedule.
//!
//! The instances from before a change serve until those with the new values are ready. If these find no
//! node, the raise is reverted, and it isn't tried again.

use super::{
    enforce::{ResourceDecision, WaitReason},
    recommend::Allocation,
    units::{Resource, Span, is_known},
};

/// The instances of a component since the latest change.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rollout {
    /// Whether no instance from before the change is left.
    pub complete: bool,
    /// Seconds since the change for which an instance has been unschedulable. None if none is.
    pub unschedulable: Option<f64>,
    /// Whether a raise has been reverted.
    pub reverted: bool,
}

impl Rollout {
    /// Whether the change from `previous` to `applied` is reverted: it is a raise, and an instance has
    /// been unschedulable for `patience` seconds.
    pub fn reverts(&self, previous: Allocation, applied: Allocation, patience: f64) -> bool {
        let is_raise = applied.request > previous.request;
        let is_overdue = self.unschedulable.is_some_and(|it| is_known(it) && it >= patience);
        is_raise && is_overdue && !self.complete && !self.reverted
    }

    /// Why a raise to `request` is reverted.
    pub fn explain(&self, resource: Resource, request: f64) -> String {
        let (request, waited) = (resource.show(request), Span(self.unschedulable.unwrap_or(0.0)));
        format!("instances with {request} could not be scheduled for {waited}")
    }

    /// Holds a change that could not be scheduled, or that would hide that the latest one can't.
    pub fn guard(&self, decision: ResourceDecision, present: Option<f64>) -> ResourceDecision {
        let Some(change) = decision.change() else { return decision };
        let raises = present.is_none_or(|present| change.request > present);
        if raises && self.reverted {
            ResourceDecision::Wait(WaitReason::Reverted)
        } else if self.unschedulable.is_some() && (raises || !self.complete) {
            ResourceDecision::Wait(WaitReason::Unschedulable)
        } else {
            decision
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::ResourceChange, *};

    const PATIENCE: f64 = 300.0;

    fn request(value: f64) -> Allocation {
        Allocation { request: Some(value), limit: None }
    }

    fn change(request: f64) -> ResourceDecision {
        ResourceDecision::Apply(ResourceChange { request, limit: None })
    }

    fn stuck(seconds: f64) -> Rollout {
        Rollout { unschedulable: Some(seconds), ..Rollout::default() }
    }

    #[test]
    fn raise_that_stays_unschedulable_is_reverted() {
        let reverts = |rollout: Rollout| rollout.reverts(request(1.0), request(2.0), PATIENCE);
        assert!(reverts(stuck(300.0)) && !reverts(stuck(299.0)));
        let basis = stuck(300.0).explain(Resource::Cpu, 2.0);
        assert_eq!(basis, "instances with 2000m could not be scheduled for 5 min");
        assert!(!reverts(stuck(f64::NAN)) && !reverts(stuck(-1.0)));
        assert!(
            !reverts(Rollout { complete: true, ..stuck(300.0) }),
            "an instance was added later"
        );
        assert!(!reverts(Rollout { reverted: true, ..stuck(300.0) }));
        assert!(!reverts(Rollout::default()));
        assert!(stuck(300.0).reverts(Allocation::default(), request(2.0), PATIENCE));
        for previous in [2.0, 3.0] {
            assert!(!stuck(300.0).reverts(request(previous), request(2.0), PATIENCE), "no raise");
        }
    }

    #[test]
    fn changes_are_held_while_an_instance_is_unschedulable() {
        let unschedulable = ResourceDecision::Wait(WaitReason::Unschedulable);
        let complete = Rollout { complete: true, ..stuck(1.0) };
        for (rollout, raise, lower) in [
            (Rollout::default(), change(3.0), change(1.0)),
            (stuck(1.0), unschedulable, unschedulable),
            (complete, unschedulable, change(1.0)),
            (
                Rollout { reverted: true, ..Rollout::default() },
                ResourceDecision::Wait(WaitReason::Reverted),
                change(1.0),
            ),
        ] {
            assert_eq!(rollout.guard(change(3.0), Some(2.0)), raise, "{rollout:?}");
            assert_eq!(rollout.guard(change(1.0), Some(2.0)), lower, "{rollout:?}");
            assert_eq!(rollout.guard(ResourceDecision::Keep, None), ResourceDecision::Keep);
        }
    }

    proptest! {
        /// A cluster schedules instances up to `capacity`, and each step recommends another value.
        #[test]
        fn raise_is_reverted_at_most_once_and_never_repeated(
            steps in prop::collection::vec((1.0..100.0_f64, 1.0..100.0_f64, 0.0..400.0_f64), 1..50),
        ) {
            let (mut applied, mut running, mut unschedulable) = (10.0, 10.0, None);
            let (mut reverted, mut reverts) = (false, 0);
            for (wanted, capacity, seconds) in steps {
                if applied <= capacity {
                    (running, unschedulable) = (applied, None);
                } else if applied > running {
                    unschedulable = Some(unschedulable.unwrap_or(0.0) + seconds);
                }
                let complete = applied <= running;
                let rollout = Rollout { complete, unschedulable, reverted };
                if rollout.reverts(request(running), request(applied), PATIENCE) {
                    (applied, unschedulable, reverted) = (running, None, true);
                    reverts += 1;
                    continue;
                }
                let before = applied;
                if let Some(change) = rollout.guard(change(wanted), Some(applied)).change() {
                    (applied, unschedulable) = (change.request, None);
                }
                prop_assert!(!reverted || applied <= before, "raised from {before} to {applied}");
            }
            prop_assert!(reverts <= 1);
        }
    }
}
