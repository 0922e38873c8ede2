//! What a world comes to in the end, whatever happened to it.

use super::*;

fn content(plan: &Plan) -> BTreeMap<Key, Value> {
    let unit = |unit: &UnitPlan| ((unit.cluster.clone(), unit.id.clone()), unit.spec.clone());
    plan.units.iter().map(unit).collect()
}

fn check_end(world: &World) -> Result<(), TestCaseError> {
    let running = world.running();
    let Some(record) = &world.record else {
        prop_assert!(running.is_empty(), "left over: {running:?}");
        prop_assert!(world.units.is_empty());
        return Ok(());
    };
    let bad = record.plan.units.iter().any(|unit| unit.spec["bad"] == true);
    match &record.stage {
        Stage::Settled { .. } => {
            prop_assert!(!bad);
            prop_assert_eq!(running, content(&record.plan));
        }
        Stage::RolledBack { .. } => {
            prop_assert_eq!(record.deployment.policy, Some(Policy::AllOrNothing));
            let before = record.former.as_ref().map(|former| content(&former.plan));
            let mut before = before.unwrap_or_default();
            // What a cluster wouldn't have before, it won't have now.
            let refused: Vec<_> = before
                .iter()
                .filter(|(_, spec)| spec["bad"] == true)
                .map(|(key, _)| key.clone())
                .collect();
            let mut running = running;
            for key in &refused {
                before.remove(key);
                running.remove(key);
            }
            prop_assert_eq!(running, before);
        }
        Stage::Driving { .. } => {
            // Only what a cluster won't have is open, and only with best effort.
            prop_assert!(bad);
            prop_assert_eq!(record.deployment.policy, Some(Policy::BestEffort));
            let good = world.views().iter().filter(|it| is_good(it.record, &it.seen)).count();
            prop_assert_eq!(good, record.plan.units.len() - 1);
        }
        stage => prop_assert!(false, "it ends at {stage:?}"),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_end_is_the_right_one_whatever_happens(
        disturbances in prop::collection::vec((0..24_u8, any::<usize>(), any::<u8>()), 0..150),
    ) {
        let mut world = World::new();
        world.want(2, Policy::BestEffort, false);
        for disturbance in disturbances {
            world.disturb(disturbance);
        }
        let rounds = world.calm();
        prop_assert!(rounds < 60, "it doesn't come to rest: {world:?}");
        check_end(&world)?;
    }

    #[test]
    fn all_or_nothing_touches_nothing_while_a_cluster_is_away(away in 0..3_usize) {
        let mut world = World::new();
        world.want(3, Policy::AllOrNothing, false);
        world.calm();
        let before = world.running();
        world.clusters.get_mut(NAMES[away]).unwrap().away_since = Some(world.now);
        world.want(3, Policy::AllOrNothing, false);
        prop_assert!(!world.begin(0));
        world.now += 60_001;
        prop_assert!(world.settle());
        world.calm();
        prop_assert_eq!(world.running(), before);
        let rolled_back =
            matches!(world.record.as_ref().unwrap().stage, Stage::RolledBack { .. });
        prop_assert!(rolled_back);
    }

    #[test]
    fn ending_after_any_step_of_a_rollback_changes_nothing_about_its_end(end_after in 0..40_usize) {
        let mut world = World::new();
        world.want(3, Policy::AllOrNothing, false);
        world.calm();
        let before = world.running();
        world.want(2, Policy::AllOrNothing, true);
        for at in 0..40 {
            if at == end_after {
                world.calls.clear();
                world.refused.clear();
            }
            match at % 4 {
                0 => { world.begin(at); }
                1 => world.finish(0, 3),
                2 => { world.settle(); }
                _ => { world.progress(true); }
            }
        }
        world.calm();
        prop_assert_eq!(world.running(), before);
        check_end(&world)?;
    }
}

#[test]
fn a_hundred_changes_leave_only_the_last() {
    let mut world = World::new();
    for round in 0..100 {
        world.want(1 + round % 3, Policy::BestEffort, false);
        if round % 7 == 0 {
            world.calm();
        }
    }
    world.calm();
    assert_eq!(world.running(), content(&world.record.as_ref().unwrap().plan));
}
