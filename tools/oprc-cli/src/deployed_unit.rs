//! Finds the unit that a command line names: by its deployment, its class, or its id.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use oprc_rest::{ClassRuntime, Condition, Deployment, UnitStatus};
use oprc_unit::spec::StateType;

use crate::{
    client::{Client, escape},
    error::{CliError, optional},
};

/// What a command line says about a unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnitSelector<'a> {
    /// Deployment, CLASS, PACKAGE.CLASS, or the id of a ClassRuntime.
    pub(crate) name: &'a str,
    pub(crate) class: Option<&'a str>,
    pub(crate) cluster: Option<&'a str>,
    pub(crate) environment: Option<&'a str>,
}

/// A unit with its package.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeployedUnit {
    pub(crate) status: UnitStatus,
    /// Key of its deployment; `None` if the package manager doesn't manage the unit.
    pub(crate) deployment: Option<String>,
    pub(crate) package: String,
    pub(crate) version: String,
    /// `None` if it has no state, or no plan of the package manager.
    state_type: Option<StateType>,
    /// Id of the member that it belongs to, if members divide the objects of the class among them.
    member: Option<i32>,
}

impl DeployedUnit {
    /// Whether the class has only one object.
    pub(crate) fn is_singleton(&self) -> bool {
        self.state_type == Some(StateType::Singleton)
    }
}

/// Whether a class is meant by CLASS, PACKAGE.CLASS or the id of a ClassRuntime.
pub(crate) fn is_named(class: &ClassRuntime, name: &str) -> bool {
    let qualified = || format!("{}.{}", class.package_name, class.unit.class);
    class.unit.class == name || class.id == name || qualified() == name
}

/// The units of one class; never empty. A deployment takes precedence over a class of the same name.
pub(crate) async fn find(client: &Client, selector: UnitSelector<'_>) -> Result<Vec<DeployedUnit>> {
    let path = format!("/deployments/{}", escape(selector.name));
    let found = match optional(client.get::<Deployment>(&path).await)? {
        Some(deployment) => of_deployment(deployment),
        None => of_class(client, selector.name).await?,
    };
    Ok(select(found, selector)?)
}

fn of_deployment(deployment: Deployment) -> Vec<DeployedUnit> {
    let Deployment { plan, status, .. } = deployment;
    let planned = |id: &str| plan.units.iter().find(|it| it.id == id).map(|it| &it.spec);
    let units = status.units.into_iter().map(|status| DeployedUnit {
        state_type: planned(&status.id)
            .and_then(|it| it.state.as_ref())
            .map(|state| state.state_type),
        member: planned(&status.id).and_then(|it| it.odgm_config.as_ref()?.member_id),
        deployment: Some(plan.deployment.clone()),
        package: plan.package.clone(),
        version: plan.version.clone(),
        status,
    });
    units.collect()
}

async fn of_class(client: &Client, name: &str) -> Result<Vec<DeployedUnit>> {
    let all: Vec<ClassRuntime> = client.list("/class-runtimes").await?;
    let mut units = Vec::new();
    for class in all.into_iter().filter(|it| is_named(it, name)) {
        let planned = match &class.deployment {
            Some(key) => {
                let path = format!("/deployments/{}", escape(key));
                optional(client.get::<Deployment>(&path).await)?.map(of_deployment)
            }
            None => None,
        };
        let planned = planned.into_iter().flatten().find(|it| it.status.id == class.id);
        units.push(DeployedUnit {
            // An orphan names a deployment that doesn't exist.
            deployment: planned.as_ref().and_then(|it| it.deployment.clone()),
            member: planned.as_ref().and_then(|it| it.member),
            state_type: planned.and_then(|it| it.state_type),
            package: class.package_name,
            version: class.package_version,
            status: class.unit,
        });
    }
    if units.is_empty() {
        bail!(CliError::NotFound(format!(
            "there is no deployment and no deployed class {name:?}; `oprc status` lists deployments"
        )));
    }
    Ok(units)
}

fn select(
    found: Vec<DeployedUnit>,
    selector: UnitSelector<'_>,
) -> Result<Vec<DeployedUnit>, CliError> {
    let UnitSelector { name, class, cluster, environment } = selector;
    let matches = |unit: &DeployedUnit| {
        let UnitStatus { class: own_class, cluster: own_cluster, environment: own, .. } =
            &unit.status;
        class.is_none_or(|it| it == own_class)
            && cluster.is_none_or(|it| it == own_cluster)
            && environment.is_none_or(|it| it == own)
    };
    let units: Vec<_> = found.into_iter().filter(matches).collect();
    let classes: BTreeSet<_> = units.iter().map(|it| it.status.class.as_str()).collect();
    if classes.len() > 1 {
        let classes = classes.into_iter().collect::<Vec<_>>().join(", ");
        return Err(CliError::InvalidInput(format!(
            "the deployment has several classes; select one with --class: {classes}"
        )));
    }
    if units.is_empty() {
        return Err(CliError::NotFound(format!(
            "deployment {name} has no unit that matches; see `oprc status {name}`"
        )));
    }
    Ok(units)
}

/// Any unit, preferably one that is running.
pub(crate) fn any_running(units: Vec<DeployedUnit>) -> Result<DeployedUnit, CliError> {
    let is_running = |it: &DeployedUnit| it.status.condition == Condition::Running;
    let at = units.iter().position(is_running).unwrap_or_default();
    let none = || CliError::NotFound("no unit is deployed; see `oprc status`".to_owned());
    units.into_iter().nth(at).ok_or_else(none)
}

/// Any unit of a class whose members know where each object is; otherwise the only unit.
pub(crate) fn any_member(units: Vec<DeployedUnit>) -> Result<DeployedUnit, CliError> {
    let deployments: BTreeSet<_> = units.iter().map(|it| &it.deployment).collect();
    let is_divided = deployments.len() == 1 && units.iter().all(|it| it.member.is_some());
    if is_divided { any_running(units) } else { only(units) }
}

/// The only unit: each has objects of its own.
pub(crate) fn only(units: Vec<DeployedUnit>) -> Result<DeployedUnit, CliError> {
    let ids: Vec<_> = units.iter().map(|it| it.status.id.clone()).collect();
    match <[DeployedUnit; 1]>::try_from(units) {
        Ok([unit]) => Ok(unit),
        Err(_) => Err(CliError::InvalidInput(format!(
            "each of these units has objects of its own; select one with --cluster, --env or its id: {}",
            ids.join(", ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(class: &str, cluster: &str, condition: Condition) -> DeployedUnit {
        let status = UnitStatus {
            id: format!("shop.{class}..{cluster}"),
            class: class.to_owned(),
            cluster: cluster.to_owned(),
            condition,
            ..UnitStatus::default()
        };
        DeployedUnit { status, ..DeployedUnit::default() }
    }

    #[test]
    fn units_with_state_are_never_selected_at_random() {
        let units = vec![
            unit("Cart", "east", Condition::Down),
            unit("Cart", "west", Condition::Running),
            unit("Item", "west", Condition::Running),
        ];
        let selector = UnitSelector { name: "shop", class: None, cluster: None, environment: None };
        let error = select(units.clone(), selector).unwrap_err().to_string();
        assert!(error.contains("--class: Cart, Item"), "{error}");
        let carts = UnitSelector { class: Some("Cart"), ..selector };
        let found = select(units.clone(), carts).unwrap();
        assert_eq!(any_running(found.clone()).unwrap().status.cluster, "west");
        let error = only(found).unwrap_err().to_string();
        assert!(error.ends_with("shop.Cart..east, shop.Cart..west"), "{error}");
        // Members answer calls of other objects with the member that has them.
        let members = |deployments: [&str; 2]| {
            let found = select(units.clone(), carts).unwrap().into_iter();
            let member = |(unit, deployment): (DeployedUnit, &str)| DeployedUnit {
                member: Some(1),
                deployment: Some(deployment.to_owned()),
                ..unit
            };
            found.zip(deployments).map(member).collect::<Vec<_>>()
        };
        assert_eq!(any_member(members(["d", "d"])).unwrap().status.cluster, "west");
        assert!(any_member(members(["d", "other"])).is_err());
        assert!(any_member(select(units.clone(), carts).unwrap()).is_err());
        let east = UnitSelector { cluster: Some("east"), ..carts };
        assert_eq!(only(select(units.clone(), east).unwrap()).unwrap().status.cluster, "east");
        let none = UnitSelector { environment: Some("prod"), ..selector };
        assert!(matches!(select(units, none), Err(CliError::NotFound(_))));
    }
}
