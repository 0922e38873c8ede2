//! A class converges to the same state from any start and over any interruptions.

use proptest::prelude::*;
use serde_json::Value;

use super::{cases, cluster::Cluster, specs, view::View};

/// What can happen during a rollout.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// The cluster's controllers run.
    Settle,
    /// A whole reconcile.
    Pass,
    /// A reconcile that crashes after so many actions.
    Cut(usize),
    /// A reconcile on the view of so many steps ago.
    Stale(usize),
}

fn undisturbed() -> impl Strategy<Value = Step> {
    prop_oneof![Just(Step::Settle), Just(Step::Pass)]
}

fn cut() -> impl Strategy<Value = Step> {
    prop_oneof![1 => Just(Step::Settle), 1 => Just(Step::Pass), 3 => (0_usize..12).prop_map(Step::Cut)]
}

fn stale() -> impl Strategy<Value = Step> {
    prop_oneof![2 => Just(Step::Settle), 2 => Just(Step::Pass), 3 => (1_usize..20).prop_map(Step::Stale)]
}

fn anything() -> impl Strategy<Value = Step> {
    prop_oneof![1 => undisturbed(), 1 => cut(), 1 => stale()]
}

/// A sequence of specifications, and what happens after each.
type Life = Vec<(Value, Vec<Step>)>;

fn lives(step: impl Strategy<Value = Step>) -> impl Strategy<Value = Life> {
    prop::collection::vec((specs::any(), prop::collection::vec(step, 0..8)), 1..4)
}

/// The last specification is a valid one.
pub(super) fn eventful_lives() -> impl Strategy<Value = Life> {
    let steps = || prop::collection::vec(anything(), 0..8);
    let before = prop_oneof![2 => specs::any(), 1 => specs::obstacle()];
    let former = prop::collection::vec((before, steps()), 1..4);
    (former, (specs::any(), steps())).prop_map(|(mut life, last)| {
        life.push(last);
        life
    })
}

fn live(life: &[(Value, Vec<Step>)]) -> Cluster {
    let mut cluster = Cluster::new();
    let mut views: Vec<View> = Vec::new();
    for (spec, steps) in life {
        cluster.set_spec(spec);
        for step in steps {
            views.push(cluster.view());
            match step {
                Step::Settle => drop(cluster.run_controllers()),
                Step::Pass => drop(cluster.reconcile()),
                Step::Cut(most) => drop(cluster.reconcile_on(&cluster.view(), *most)),
                Step::Stale(ago) => {
                    let view = views[views.len().saturating_sub(*ago + 1)].clone();
                    cluster.reconcile_on(&view, usize::MAX);
                }
            }
        }
    }
    cluster.converge();
    cluster
}

/// A cluster that only ever had the last specification.
fn fresh(life: &[(Value, Vec<Step>)]) -> Cluster {
    Cluster::with(&life.last().unwrap().0)
}

/// At rest nothing is written, now or an hour later. Only a certificate is renewed much later.
fn assert_at_rest(cluster: &mut Cluster) {
    for _ in 0..2 {
        let decision = cluster.plan_actions(&cluster.view(), &[]);
        assert_eq!(decision.actions, [], "at rest");
        let requeue_after = decision.requeue_after;
        let day = std::time::Duration::from_hours(24);
        assert!(requeue_after.is_none_or(|it| it > day), "{requeue_after:?}");
        cluster.advance(std::time::Duration::from_hours(1));
    }
}

pub(super) fn assert_as_if_fresh(life: &[(Value, Vec<Step>)]) {
    let mut cluster = live(life);
    let expected = fresh(life).outcome();
    assert_eq!(
        serde_json::to_string_pretty(&cluster.outcome()).unwrap(),
        serde_json::to_string_pretty(&expected).unwrap(),
    );
    assert_eq!(expected["status"]["phase"], "Available");
    assert_at_rest(&mut cluster);
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn the_result_depends_on_the_last_specification_only(life in lives(undisturbed())) {
        assert_as_if_fresh(&life);
    }

    #[test]
    fn a_crash_after_any_action_leaves_nothing_behind(life in lives(cut())) {
        assert_as_if_fresh(&life);
    }

    #[test]
    fn decisions_on_stale_views_do_no_lasting_harm(life in lives(stale())) {
        assert_as_if_fresh(&life);
    }
}

/// Its functions have empty variables.
#[test]
fn a_class_converges_with_a_data_grid_without_collections() {
    let mut spec = specs::one("dev");
    spec["addons"] = serde_json::json!(["odgm"]);
    assert_at_rest(&mut Cluster::with(&spec));
}
