//! Ids of the units that PM deploys: `deployment.class..cluster`, or
//! `deployment.class.environment..cluster` for a unit of an environment.

/// The parts of a unit id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitId<'a> {
    pub deployment: &'a str,
    pub class: &'a str,
    /// Empty for a unit that belongs to no environment.
    pub environment: &'a str,
    pub cluster: &'a str,
}

/// Joins the parts of a unit id. The names of deployments, classes and environments contain no
/// dots, so different parts give different ids; their maximum lengths keep it below 253 characters.
pub fn unit_id(deployment: &str, class: &str, environment: &str, cluster: &str) -> String {
    if environment.is_empty() {
        format!("{deployment}.{class}..{cluster}")
    } else {
        format!("{deployment}.{class}.{environment}..{cluster}")
    }
}

/// Splits a unit id; `None` for an id of another form.
pub fn parse_unit_id(id: &str) -> Option<UnitId<'_>> {
    let (unit, cluster) = id.split_once("..")?;
    let (deployment, rest) = unit.split_once('.')?;
    let (class, environment) = match rest.split_once('.') {
        Some((class, environment)) if !environment.is_empty() => (class, environment),
        Some(_) => return None,
        None => (rest, ""),
    };
    let complete = ![deployment, class, cluster].contains(&"");
    let valid = complete && !environment.contains('.') && !cluster.starts_with('.');
    valid.then_some(UnitId { deployment, class, environment, cluster })
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

        #[test]
        fn parsed_ids_are_rebuilt_unchanged(id in "[a-zA-Z.]{0,12}") {
            if let Some(unit) = parse_unit_id(&id) {
                let rebuilt = unit_id(unit.deployment, unit.class, unit.environment, unit.cluster);
                prop_assert_eq!(rebuilt, id);
            }
        }
    }

    #[test]
    fn ids_of_another_form_have_no_parts() {
        for id in [
            "",
            "shop",
            "a.b.c",
            "a.b.c.d",
            "..dev.x",
            "a..x",
            "a.b..",
            "a.b...x",
            ".b..x",
            "a.b.c.d..x",
        ] {
            assert_eq!(parse_unit_id(id), None, "{id}");
        }
    }
}
