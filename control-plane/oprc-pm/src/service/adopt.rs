//! Adopting orphans: the unit becomes one of the deployment that its id names.

use std::{collections::BTreeSet, mem};

use oprc_grpc::{deployment::ClassRuntime, unit::from_wire};
use oprc_models::{OClassDeployment, VersionRange, check_deployment};
use oprc_rest::{Deployment, Plan, Reason, UnitPlan};
use oprc_unit::{Capacity, Identity, UnitSpec, admit, requested};

use super::{Caller, DeploymentService, apply::new_record};
use crate::{
    clock,
    crm_client::acknowledged,
    error::Error,
    id,
    rollout::{DeploymentRecord, MAX_UNITS, Stage, UnitRecord, planned_key, rolls_back_on_failure},
    state::{Attempt, check_transaction_size, records_of, replace_deployment},
};

impl DeploymentService {
    /// Makes an orphan a unit of the deployment that its id names, which is created if it doesn't
    /// exist. The unit is adopted as it is: nothing is sent, so nothing restarts.
    pub async fn adopt(
        &self,
        cluster: &str,
        id: &str,
        deployment: &str,
        caller: &Caller,
    ) -> Result<Deployment, Error> {
        let (parts, namespace) = self.orphan(cluster, id)?;
        if parts.deployment != deployment {
            let message = format!("the unit belongs to {:?} by its id", parts.deployment);
            return Err(Error::Parameter { field: "deployment", message });
        }
        let client = self.client(cluster)?;
        let class = client.class(id, &namespace, &caller.correlation_id).await?;
        let spec = class.spec.as_ref().and_then(|spec| from_wire(spec).ok()).ok_or_else(|| {
            let detail = format!("{cluster} does not report a readable spec of {id}");
            Error::conflict("UNREADABLE", detail, &[])
        })?;
        let unit = UnitPlan {
            id: id.to_owned(),
            cluster: cluster.to_owned(),
            environment: parts.environment.to_owned(),
            namespace,
            class: parts.class.to_owned(),
            requested: self.requested_by(cluster, &spec).unwrap_or_default(),
            spec,
            reasons: vec![Reason {
                field: "unit".to_owned(),
                value: "adopted".to_owned(),
                because: "the cluster had this unit".to_owned(),
            }],
            ..UnitPlan::default()
        };
        self.store_adopted(deployment, &class, &unit, caller).await?;
        self.get(deployment)
    }

    /// Requests of a unit; none if the unit can't be evaluated.
    fn requested_by(&self, cluster: &str, spec: &UnitSpec) -> Option<Capacity> {
        let platform = self.clusters.facts().remove(cluster)?.platform?;
        let id = spec.deployment_unit.as_ref().map(|unit| unit.id.as_str()).unwrap_or_default();
        let identity = Identity::for_unit(id, "", spec.target_environment.as_deref());
        let admitted = admit(identity, spec, &platform).ok()?;
        Some(requested(&admitted.class, &admitted.selection, &platform))
    }

    async fn store_adopted(
        &self,
        key: &str,
        class: &ClassRuntime,
        unit: &UnitPlan,
        caller: &Caller,
    ) -> Result<(), Error> {
        let build = || async move {
            let (before, known) = self.cache.deployment_with_units(key);
            if self.cache.unit(&planned_key(unit)).is_some() {
                let detail = format!("{} is no orphan any more", unit.id);
                return Err(Error::conflict("NO_ORPHAN", detail, &[]));
            }
            if known.len() >= MAX_UNITS {
                let message = format!("already has the maximum of {MAX_UNITS} units");
                return Err(Error::Parameter { field: "deployment", message });
            }
            let mut record = match &before {
                Some(stored) => stored.record.as_ref().clone(),
                None => recovered_deployment(key, class, caller),
            };
            check_adoptable(&record)?;
            add_target(&mut record, unit)?;
            record.plan.units.push(unit.clone());
            record.updated_at = clock::now();
            // A writer that has read the deployment without this unit must not overwrite it.
            let former = mem::replace(&mut record.revision, id::new_id());
            let mut units = records_of(&known);
            // The others have the same spec in the new revision, and aren't sent again.
            for unit in units.values_mut().filter(|unit| unit.revision == former) {
                unit.revision.clone_from(&record.revision);
                if let Some(it) = unit.acknowledged.as_mut().filter(|it| it.revision == former) {
                    it.revision.clone_from(&record.revision);
                }
            }
            let adopted = UnitRecord {
                acknowledged: Some(acknowledged(class, &record.revision)),
                correlation_id: caller.correlation_id.clone(),
                ..UnitRecord::planned(&record, &record.revision, unit)
            };
            units.insert(planned_key(unit), adopted);
            check_transaction_size(&record, &units)?;
            let change = replace_deployment(key, before.as_ref(), Some(&record), &known, &units)?;
            let change = change.fenced(&self.lease);
            let change = self.add_revision(change, &record, "adopted", caller).await?;
            Ok(Attempt::Commit(change, record))
        };
        let record = self.cache.commit_with_retry(build).await?;
        self.publish_change("deployment.updated", &record);
        Ok(())
    }
}

/// The record of a deployment that is known by an orphan only.
fn recovered_deployment(key: &str, class: &ClassRuntime, caller: &Caller) -> DeploymentRecord {
    let deployment = OClassDeployment {
        key: key.to_owned(),
        package: Some(class.package.clone()),
        version: class.package_version.parse().ok().map(|it| VersionRange::exact(&it)),
        ..OClassDeployment::default()
    };
    let plan = Plan {
        deployment: key.to_owned(),
        package: class.package.clone(),
        version: class.package_version.clone(),
        ..Plan::default()
    };
    new_record(&deployment, plan, None, caller)
}

/// A deployment adopts no unit while it may still be rolled back: that would delete the unit.
fn check_adoptable(record: &DeploymentRecord) -> Result<(), Error> {
    let key = &record.deployment.key;
    let (reason, detail) = match record.stage {
        Stage::Succeeded => return Ok(()),
        Stage::RollingOut if !rolls_back_on_failure(&record.deployment) => return Ok(()),
        Stage::Deleting => (
            "DELETING",
            format!("{key} can't adopt the orphan, because the deployment is being deleted"),
        ),
        Stage::RollingOut | Stage::RollingBack { .. } | Stage::RolledBack { .. } => {
            let detail = format!(
                "{key} can't adopt the orphan, because it may be rolled back, which would delete \
                 the orphan: adopt it after a successful rollout"
            );
            ("NOT_SUCCEEDED", detail)
        }
    };
    Err(Error::conflict(reason, detail, &[key]))
}

/// Extends the deployment's classes and targets by those of a unit.
fn add_target(record: &mut DeploymentRecord, unit: &UnitPlan) -> Result<(), Error> {
    let (units, deployment) = (&record.plan.units, &mut record.deployment);
    if units.iter().any(|it| it.environment.is_empty() != unit.environment.is_empty()) {
        let detail = "either all units of a deployment have an environment, or none";
        return Err(Error::conflict("ENVIRONMENTS", detail, &[&unit.id]));
    }
    if !deployment.classes().any(|class| class == unit.class) {
        deployment.classes.push(unit.class.clone());
    }
    let clusters = units.iter().map(|unit| &unit.cluster);
    add_name(&mut deployment.target_clusters, clusters, &unit.cluster);
    if !unit.environment.is_empty() {
        let environments = units.iter().map(|unit| &unit.environment);
        add_name(&mut deployment.target_envs, environments, &unit.environment);
    }
    check_deployment(deployment)?;
    Ok(())
}

/// An empty list means any: before a name is added, it is filled with the existing ones.
fn add_name<'a>(
    list: &mut Vec<String>,
    existing: impl Iterator<Item = &'a String>,
    name: &'a String,
) {
    if list.is_empty() {
        let existing: BTreeSet<_> = existing.filter(|it| !it.is_empty()).collect();
        list.extend(existing.into_iter().cloned());
    }
    if !list.contains(name) {
        list.push(name.clone());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(units: &[(&str, &str)]) -> DeploymentRecord {
        let at = "2026-11-16T00:00:00Z";
        let units = units.iter().map(|(cluster, environment)| unit("A", cluster, environment));
        serde_json::from_value(json!({
            "deployment": {"key": "d", "package": "p", "class": "A"}, "revision": "r",
            "created_at": at, "updated_at": at, "correlation_id": "",
            "stage": {"stage": "succeeded"}, "stage_since": at,
            "plan": {"deployment": "d", "package": "p", "version": "1.0.0", "reasons": [],
                     "units": units.collect::<Vec<_>>()},
        }))
        .unwrap()
    }

    fn unit(class: &str, cluster: &str, environment: &str) -> UnitPlan {
        UnitPlan {
            class: class.to_owned(),
            cluster: cluster.to_owned(),
            environment: environment.to_owned(),
            ..UnitPlan::default()
        }
    }

    #[test]
    fn adoption_keeps_the_existing_targets() {
        let mut anywhere = record(&[("one", "")]);
        add_target(&mut anywhere, &unit("A", "two", "")).unwrap();
        assert_eq!(anywhere.deployment.classes().collect::<Vec<_>>(), ["A"]);
        assert_eq!(anywhere.deployment.target_clusters, ["one", "two"]);
        add_target(&mut anywhere, &unit("B", "two", "")).unwrap();
        assert_eq!(anywhere.deployment.classes().collect::<Vec<_>>(), ["A", "B"]);

        let mut staged = record(&[("one", "test")]);
        add_target(&mut staged, &unit("A", "one", "prod")).unwrap();
        assert_eq!(staged.deployment.target_envs, ["test", "prod"]);
        add_target(&mut staged, &unit("A", "one", "")).unwrap_err();
    }
}
