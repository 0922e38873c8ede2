//! Once disturbances stop, every rollout ends in the state that it should, and leaves nothing over.

mod simulation;

use std::{collections::BTreeMap, time::Duration};

use oprc_models::Policy;
use oprc_rest::{Plan, UnitPlan};
use oprc_unit::UnitSpec;
use proptest::prelude::*;

use self::simulation::{CLUSTERS, CallFate, MAX_ROUNDS, World, disturbance};
use super::*;

fn content(plan: &Plan) -> BTreeMap<UnitKey, UnitSpec> {
    let unit = |unit: &UnitPlan| ((unit.cluster.clone(), unit.id.clone()), unit.spec.clone());
    plan.units.iter().map(unit).collect()
}

fn check_end(world: &World) -> Result<(), TestCaseError> {
    let mut running = world.running();
    let Some(record) = &world.record else {
        prop_assert!(running.is_empty(), "left over: {running:?}");
        prop_assert!(world.units.is_empty());
        return Ok(());
    };
    let rejected = record.plan.units.iter().any(|unit| unit.spec.paused);
    match &record.stage {
        Stage::Succeeded => {
            prop_assert!(!rejected);
            prop_assert_eq!(running, content(&record.plan));
        }
        Stage::RolledBack { .. } => {
            prop_assert_eq!(record.deployment.policy, Some(Policy::AllOrNothing));
            let former = record.former.as_ref().map(|former| content(&former.plan));
            let mut former = former.unwrap_or_default();
            // A unit that was rejected before is rejected again.
            former.retain(|key, spec| {
                let rejected = spec.paused;
                if rejected {
                    running.remove(key);
                }
                !rejected
            });
            prop_assert_eq!(running, former);
        }
        Stage::RollingOut => {
            // Only a rejected unit keeps a rollout open, and only with best effort.
            prop_assert!(rejected);
            prop_assert_eq!(record.deployment.policy, Some(Policy::BestEffort));
            let views = world.views();
            let ready = views.iter().filter(|it| is_ready(it.record, &it.observation)).count();
            prop_assert_eq!(ready, record.plan.units.len() - 1);
        }
        stage => prop_assert!(false, "it ends in {stage:?}"),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn converges_after_any_disturbances(
        disturbances in prop::collection::vec(disturbance(), 0..150),
    ) {
        let mut world = World::new();
        world.update(2, Policy::BestEffort, false);
        for disturbance in disturbances {
            world.disturb(disturbance);
        }
        let rounds = world.run_to_rest();
        prop_assert!(rounds < MAX_ROUNDS, "it doesn't come to rest: {world:?}");
        check_end(&world)?;
    }

    #[test]
    fn all_or_nothing_changes_nothing_while_a_cluster_is_unreachable(at in 0..3_usize) {
        let mut world = World::new();
        world.update(3, Policy::AllOrNothing, false);
        world.run_to_rest();
        let before = world.running();
        world.clusters.get_mut(CLUSTERS[at]).unwrap().unreachable_since = Some(world.now);
        world.update(3, Policy::AllOrNothing, false);
        prop_assert!(!world.begin_call(0));
        world.now += Deadlines::default().unreachable + Duration::from_millis(1);
        prop_assert!(world.transition());
        world.run_to_rest();
        prop_assert_eq!(world.running(), before);
        let rolled_back =
            matches!(world.record.as_ref().unwrap().stage, Stage::RolledBack { .. });
        prop_assert!(rolled_back);
    }

    #[test]
    fn rollback_completes_if_the_process_ends_after_any_step(end_after in 0..40_usize) {
        let mut world = World::new();
        world.update(3, Policy::AllOrNothing, false);
        world.run_to_rest();
        let before = world.running();
        world.update(2, Policy::AllOrNothing, true);
        for at in 0..40 {
            if at == end_after {
                world.lose_memory();
            }
            match at % 4 {
                0 => { world.begin_call(at); }
                1 => world.finish_call(0, CallFate::Answered),
                2 => { world.transition(); }
                _ => { world.reconcile(true); }
            }
        }
        world.run_to_rest();
        prop_assert_eq!(world.running(), before);
        check_end(&world)?;
    }
}

#[test]
fn only_the_last_of_a_hundred_updates_remains() {
    let mut world = World::new();
    for round in 0..100 {
        world.update(1 + round % 3, Policy::BestEffort, false);
        if round % 7 == 0 {
            world.run_to_rest();
        }
    }
    world.run_to_rest();
    assert_eq!(world.running(), content(&world.record.as_ref().unwrap().plan));
}
