//! How a deployment is, from how its units are. Pure.

use oprc_rest::{Contact, DeploymentCondition, UnitStatus};

use crate::records::Stage;

/// In a word and in a sentence. `units` are those of the plan that is driven.
pub fn condition(stage: &Stage, units: &[UnitStatus]) -> (DeploymentCondition, String) {
    match stage {
        Stage::Driving { .. } => match of_units(units, false) {
            // Not before that is stored: if all or nothing lost a cluster now, it would go back.
            (DeploymentCondition::Running, _) => (DeploymentCondition::Deploying, String::new()),
            other => other,
        },
        Stage::Settled { .. } => of_units(units, true),
        Stage::RollingBack { because, .. } => {
            (DeploymentCondition::RollingBack, and_now(because, units))
        }
        Stage::RolledBack { because, .. } => {
            (DeploymentCondition::RolledBack, and_now(because, units))
        }
        Stage::Deleting { .. } => {
            let left: Vec<_> = units.iter().map(name).collect();
            let message = match left.as_slice() {
                [] => String::new(),
                left => format!("still there: {}", left.join(", ")),
            };
            (DeploymentCondition::Deleting, message)
        }
    }
}

fn name(unit: &UnitStatus) -> String {
    format!("{} on {}", unit.class, unit.cluster)
}

/// Whether a unit counts as Available: only where that can be believed and is about what is wanted.
pub fn is_available(unit: &UnitStatus) -> bool {
    unit.current
        && unit.contact == Contact::Fresh
        && unit.condition == oprc_rest::Condition::Running
}

/// Whether it can't become Available for now.
fn is_failing(unit: &UnitStatus) -> bool {
    unit.contact != Contact::Fresh || unit.condition == oprc_rest::Condition::Down
}

/// What is wrong with those that are failing.
fn why(units: &[UnitStatus]) -> String {
    let why = units.iter().filter(|unit| is_failing(unit)).map(|unit| {
        let why = match unit.contact {
            Contact::Fresh if unit.message.is_empty() => unit.reason.clone(),
            Contact::Fresh => unit.message.clone(),
            Contact::Unconfigured => "the cluster isn't configured any more".to_owned(),
            Contact::Stale | Contact::Unknown => "the cluster is away".to_owned(),
        };
        format!("{}: {why}", name(unit))
    });
    why.collect::<Vec<_>>().join("; ")
}

/// Why it went back, and what is wrong with what it went back to.
fn and_now(because: &str, units: &[UnitStatus]) -> String {
    match why(units).as_str() {
        "" => because.to_owned(),
        now => format!("{because}; what was before isn't all there: {now}"),
    }
}

/// `begun`: whether all of it was Available once.
fn of_units(units: &[UnitStatus], begun: bool) -> (DeploymentCondition, String) {
    let available = units.iter().filter(|unit| is_available(unit)).count();
    let failing = units.iter().filter(|unit| is_failing(unit)).count();
    if units.is_empty() {
        let message = "nothing of it is known any more: deploy it again".to_owned();
        return (DeploymentCondition::Down, message);
    }
    if available == units.len() {
        return (DeploymentCondition::Running, String::new());
    }
    if available > 0 && failing > 0 {
        return (DeploymentCondition::Partial, why(units));
    }
    let pending = |unit: &UnitStatus| unit.condition == oprc_rest::Condition::Pending;
    if failing == units.len() {
        // What was never sent anywhere isn't down yet.
        let begun = begun || units.iter().any(|unit| unit.current || !pending(unit));
        let condition =
            if begun { DeploymentCondition::Down } else { DeploymentCondition::Pending };
        return (condition, why(units));
    }
    if !begun && units.iter().all(pending) {
        return (DeploymentCondition::Pending, why(units));
    }
    (DeploymentCondition::Deploying, why(units))
}

#[cfg(test)]
mod tests {
    use oprc_rest::Condition;
    use proptest::prelude::*;

    use super::*;

    fn unit(condition: Condition, current: bool, contact: Contact) -> UnitStatus {
        UnitStatus { condition, current, contact, ..UnitStatus::default() }
    }

    #[test]
    fn partial_is_said_to_be_partial() {
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
            // What runs isn't what is wanted.
            (vec![unit(Condition::Running, false, Contact::Fresh)], DeploymentCondition::Deploying),
        ];
        for (units, expected) in cases {
            assert_eq!(of_units(&units, false).0, expected, "{units:?}");
        }
        // Of what ran before it isn't said that it was never sent.
        let unheard = [unit(Condition::Pending, false, Contact::Unknown)];
        assert_eq!(of_units(&unheard, true).0, DeploymentCondition::Down);
    }

    #[test]
    fn it_runs_once_that_is_stored() {
        let units = [unit(Condition::Running, true, Contact::Fresh)];
        let since = String::new();
        let driving = condition(&Stage::Driving { since: since.clone() }, &units);
        assert_eq!(driving, (DeploymentCondition::Deploying, String::new()));
        let settled = condition(&Stage::Settled { since }, &units);
        assert_eq!(settled, (DeploymentCondition::Running, String::new()));
    }

    #[test]
    fn what_was_gone_back_to_is_looked_at_too() {
        let units = [
            unit(Condition::Running, true, Contact::Fresh),
            UnitStatus {
                class: "A".to_owned(),
                cluster: "east".to_owned(),
                message: "no".to_owned(),
                ..unit(Condition::Down, false, Contact::Fresh)
            },
        ];
        assert_eq!(and_now("it failed", &units[..1]), "it failed");
        let told = and_now("it failed", &units);
        assert!(told.starts_with("it failed; ") && told.contains("A on east: no"), "{told}");
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
            let running = of_units(&units, false).0 == DeploymentCondition::Running;
            prop_assert_eq!(running, units.iter().all(is_available));
        }
    }
}
