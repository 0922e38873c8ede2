//! The condition of a deployment, derived from its stage and the status of its units.

use oprc_rest::{Condition, Contact, DeploymentCondition, UnitStatus};

use super::model::Stage;

/// `units` are those of the plan that is rolled out.
pub fn condition(stage: &Stage, units: &[UnitStatus]) -> (DeploymentCondition, String) {
    match stage {
        Stage::RollingOut => match condition_of_units(units, false) {
            // Running only once that is stored: until then a lost cluster causes a rollback.
            (DeploymentCondition::Running, _) => (DeploymentCondition::Deploying, String::new()),
            other => other,
        },
        Stage::Succeeded => condition_of_units(units, true),
        Stage::RollingBack { because } => {
            (DeploymentCondition::RollingBack, rollback_message(because, units))
        }
        Stage::RolledBack { because } => {
            (DeploymentCondition::RolledBack, rollback_message(because, units))
        }
        Stage::Deleting => {
            let left = units.iter().map(name).collect::<Vec<_>>().join(", ");
            let message = if left.is_empty() { left } else { format!("not deleted yet: {left}") };
            (DeploymentCondition::Deleting, message)
        }
    }
}

fn name(unit: &UnitStatus) -> String {
    format!("{} on {}", unit.class, unit.cluster)
}

/// Whether a unit counts as Available: the report must be fresh and about the desired spec.
pub fn is_available(unit: &UnitStatus) -> bool {
    unit.current && unit.contact == Contact::Fresh && unit.condition == Condition::Running
}

fn is_failing(unit: &UnitStatus) -> bool {
    unit.contact != Contact::Fresh || unit.condition == Condition::Down
}

fn failures(units: &[UnitStatus]) -> String {
    let failures = units.iter().filter(|unit| is_failing(unit)).map(|unit| {
        let why = match unit.contact {
            Contact::Fresh if unit.message.is_empty() => unit.reason.clone(),
            Contact::Fresh => unit.message.clone(),
            Contact::Unconfigured => "the cluster is no longer configured".to_owned(),
            Contact::Stale | Contact::Unknown => "the cluster is unreachable".to_owned(),
        };
        format!("{}: {why}", name(unit))
    });
    failures.collect::<Vec<_>>().join("; ")
}

fn rollback_message(because: &str, units: &[UnitStatus]) -> String {
    match failures(units).as_str() {
        "" => because.to_owned(),
        failures => format!("{because}; the former revision is not fully restored: {failures}"),
    }
}

/// `succeeded`: whether all units were Available at the same time once.
fn condition_of_units(units: &[UnitStatus], succeeded: bool) -> (DeploymentCondition, String) {
    let available = units.iter().filter(|unit| is_available(unit)).count();
    let failing = units.iter().filter(|unit| is_failing(unit)).count();
    if units.is_empty() {
        return (DeploymentCondition::Down, "it has no units any more: deploy it again".to_owned());
    }
    let pending = |unit: &UnitStatus| unit.condition == Condition::Pending;
    let begun = succeeded || units.iter().any(|unit| unit.current || !pending(unit));
    let condition = if available == units.len() {
        DeploymentCondition::Running
    } else if available > 0 && failing > 0 {
        DeploymentCondition::Partial
    } else if failing == units.len() && begun {
        DeploymentCondition::Down
    } else if failing == units.len() || !succeeded && units.iter().all(pending) {
        // A deployment that no cluster has received yet is pending, not down.
        DeploymentCondition::Pending
    } else {
        DeploymentCondition::Deploying
    };
    (condition, failures(units))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn unit(condition: Condition, current: bool, contact: Contact) -> UnitStatus {
        UnitStatus { condition, current, contact, ..UnitStatus::default() }
    }

    #[test]
    fn one_failing_unit_makes_a_deployment_partial() {
        let running = unit(Condition::Running, true, Contact::Fresh);
        let cases = [
            (vec![running.clone(), running.clone()], DeploymentCondition::Running),
            (
                vec![running.clone(), unit(Condition::Running, true, Contact::Stale)],
                DeploymentCondition::Partial,
            ),
            (
                vec![running.clone(), unit(Condition::Down, true, Contact::Fresh)],
                DeploymentCondition::Partial,
            ),
            (
                vec![running.clone(), unit(Condition::Deploying, true, Contact::Fresh)],
                DeploymentCondition::Deploying,
            ),
            (vec![unit(Condition::Down, true, Contact::Fresh)], DeploymentCondition::Down),
            (vec![unit(Condition::Pending, false, Contact::Fresh)], DeploymentCondition::Pending),
            (vec![unit(Condition::Pending, false, Contact::Unknown)], DeploymentCondition::Pending),
            // What runs isn't the desired spec.
            (vec![unit(Condition::Running, false, Contact::Fresh)], DeploymentCondition::Deploying),
        ];
        for (units, expected) in cases {
            assert_eq!(condition_of_units(&units, false).0, expected, "{units:?}");
        }
        // A deployment that succeeded once is down, not pending.
        let unknown = [unit(Condition::Pending, false, Contact::Unknown)];
        assert_eq!(condition_of_units(&unknown, true).0, DeploymentCondition::Down);
    }

    #[test]
    fn is_running_only_after_success_is_stored() {
        let units = [unit(Condition::Running, true, Contact::Fresh)];
        let rolling_out = condition(&Stage::RollingOut, &units);
        assert_eq!(rolling_out, (DeploymentCondition::Deploying, String::new()));
        let succeeded = condition(&Stage::Succeeded, &units);
        assert_eq!(succeeded, (DeploymentCondition::Running, String::new()));
    }

    #[test]
    fn rollback_message_names_failing_former_units() {
        let units = [
            unit(Condition::Running, true, Contact::Fresh),
            UnitStatus {
                class: "A".to_owned(),
                cluster: "east".to_owned(),
                message: "no".to_owned(),
                ..unit(Condition::Down, false, Contact::Fresh)
            },
        ];
        assert_eq!(rollback_message("it failed", &units[..1]), "it failed");
        let message = rollback_message("it failed", &units);
        assert!(
            message.starts_with("it failed; ") && message.contains("A on east: no"),
            "{message}"
        );
    }

    proptest! {
        #[test]
        fn running_only_when_all_are_available(states in prop::collection::vec((0..5_u8, any::<bool>(), 0..4_u8), 1..6)) {
            let units: Vec<_> = states
                .iter()
                .map(|(condition, current, contact)| {
                    let condition = match condition {
                        0 => Condition::Pending,
                        1 => Condition::Deploying,
                        2 => Condition::Running,
                        3 => Condition::Down,
                        _ => Condition::Deleted,
                    };
                    let contact = match contact {
                        0 => Contact::Fresh,
                        1 => Contact::Stale,
                        2 => Contact::Unconfigured,
                        _ => Contact::Unknown,
                    };
                    unit(condition, *current, contact)
                })
                .collect();
            let running = condition_of_units(&units, false).0 == DeploymentCondition::Running;
            prop_assert_eq!(running, units.iter().all(is_available));
        }
    }
}
