//! What units are known by.

/// The parts of a unit's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitId<'a> {
    /// The deployment.
    pub deployment: &'a str,
    /// The class.
    pub class: &'a str,
    /// The environment; empty for the cluster's own default.
    pub environment: &'a str,
    /// The cluster.
    pub cluster: &'a str,
}

/// The id of a unit: always the same for the same four. Dots are in none of the first three, and
/// the names of all four are short enough for 253 characters.
pub fn unit_id(deployment: &str, class: &str, environment: &str, cluster: &str) -> String {
    format!("{deployment}.{class}.{environment}.{cluster}")
}

/// What an id was made of; none where it isn't one of ours.
pub fn parse_unit_id(id: &str) -> Option<UnitId<'_>> {
    let mut parts = id.splitn(4, '.');
    let unit = UnitId {
        deployment: parts.next()?,
        class: parts.next()?,
        environment: parts.next()?,
        cluster: parts.next()?,
    };
    let given = [unit.deployment, unit.class, unit.cluster].iter().all(|part| !part.is_empty());
    given.then_some(unit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ids_are_unambiguous(
            deployment in "[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?",
            class in "[A-Za-z]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?",
            environment in "([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?",
            cluster in "[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?",
        ) {
            let id = unit_id(&deployment, &class, &environment, &cluster);
            prop_assert!(id.len() <= 253);
            let expected = UnitId {
                deployment: &deployment,
                class: &class,
                environment: &environment,
                cluster: &cluster,
            };
            prop_assert_eq!(parse_unit_id(&id), Some(expected));
        }
    }

    #[test]
    fn what_is_none_of_ours_has_no_parts() {
        for id in ["", "shop", "a.b.c", "..dev.x", "a.b.c."] {
            assert_eq!(parse_unit_id(id), None, "{id}");
        }
    }
}
