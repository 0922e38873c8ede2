//! Adopting orphans: the unit becomes one of the deployment that its id names.

use std::collections::BTreeSet;

use jiff::Timestamp;
use oprc_cp_storage::{Check, Transaction};
use oprc_grpc::{deployment::ClassRuntime, unit::from_wire};
use oprc_models::{OClassDeployment, VersionRange, check_deployment};
use oprc_rest::{Deployment, Plan, Reason, UnitPlan};
use oprc_unit::{Capacity, Identity, UnitSpec, admit, requested};

use super::{
    Caller, DeploymentService,
    apply::{check_of, records_of},
    conflict,
};
use crate::{
    clock,
    error::Error,
    id,
    planner::parse_unit_id,
    rollout::{
        Acknowledged, DeploymentRecord, MAX_UNITS, Stage, UnitKey, UnitRecord,
        rolls_back_on_failure,
    },
    state::{
        Attempt, Versioned, VersionedUnit, check_transaction_size,
        schema::{deployment_key, encode, unit_key},
    },
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
        let orphan = self.orphan(cluster, id)?;
        let parts = parse_unit_id(id).ok_or_else(|| Error::not_found("orphan", id))?;
        if parts.deployment != deployment {
            let message = format!("the unit belongs to {:?} by its id", parts.deployment);
            return Err(Error::Parameter { field: "deployment", message });
        }
        let namespace = orphan.unit.namespace;
        let class = self.fetch_class(cluster, id, &namespace, caller).await?;
        let spec = class.spec.as_ref().and_then(|spec| from_wire(spec).ok()).ok_or_else(|| {
            conflict("UNREADABLE", format!("{cluster} does not report a readable spec of {id}"))
        })?;
        let unit = UnitPlan {
            id: id.to_owned(),
            cluster: cluster.to_owned(),
            environment: parts.environment.to_owned(),
            namespace,
            class: parts.class.to_owned(),
            requested: self.requested_by(cluster, &spec),
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

    /// Requests of a unit; zero if the unit can't be evaluated.
    fn requested_by(&self, cluster: &str, spec: &UnitSpec) -> Capacity {
        let facts = self.clusters.facts();
        let Some(platform) = facts.get(cluster).and_then(|facts| facts.platform.as_ref()) else {
            return Capacity::default();
        };
        let id = spec.deployment_unit.as_ref().map(|unit| unit.id.as_str()).unwrap_or_default();
        let identity = Identity::for_unit(id, "", spec.target_environment.as_deref());
        admit(identity, spec, platform)
            .map(|it| requested(&it.class, &it.selection, platform))
            .unwrap_or_default()
    }

    async fn fetch_class(
        &self,
        cluster: &str,
        id: &str,
        namespace: &str,
        caller: &Caller,
    ) -> Result<ClassRuntime, Error> {
        let client = self.clusters.client(cluster);
        let client = client.ok_or_else(|| Error::not_found("cluster", cluster))?;
        let class = client.class(id, namespace, &caller.correlation_id).await;
        let unavailable = |message: &str| Error::Unavailable(format!("{cluster}: {message}"));
        class
            .map_err(|status| unavailable(status.message()))?
            .ok_or_else(|| Error::not_found("class runtime", id))
    }

    async fn store_adopted(
        &self,
        key: &str,
        class: &ClassRuntime,
        unit: &UnitPlan,
        caller: &Caller,
    ) -> Result<(), Error> {
        let build = || async move {
            let (stored, units) = self.cache.deployment_with_units(key);
            let adopted = (unit.cluster.clone(), unit.id.clone());
            if self.cache.unit(&adopted).is_some() {
                return Err(conflict("NO_ORPHAN", format!("{} is no orphan any more", unit.id)));
            }
            let adoption = Adoption::new(key, stored, units, class, unit, caller)?;
            let change = adoption.transaction(&adopted)?.fenced(&self.lease);
            let change = self.add_revision(change, &adoption.record, "adopted", caller).await?;
            Ok(Attempt::Commit(change, adoption.record))
        };
        let record = self.cache.commit_with_retry(build).await?;
        self.publish_change("deployment.updated", &record);
        Ok(())
    }
}

/// What an adoption stores.
struct Adoption {
    before: Option<Versioned<DeploymentRecord>>,
    units: Vec<VersionedUnit>,
    record: DeploymentRecord,
    unit: UnitRecord,
}

impl Adoption {
    fn new(
        key: &str,
        before: Option<Versioned<DeploymentRecord>>,
        units: Vec<VersionedUnit>,
        class: &ClassRuntime,
        unit: &UnitPlan,
        caller: &Caller,
    ) -> Result<Self, Error> {
        if units.len() >= MAX_UNITS {
            let message = format!("already has the maximum of {MAX_UNITS} units");
            return Err(Error::Parameter { field: "deployment", message });
        }
        let now = clock::now();
        let mut record = match &before {
            Some(stored) => {
                check_adoptable(&stored.record)?;
                stored.record.as_ref().clone()
            }
            None => recovered_deployment(key, class, caller, now),
        };
        // A new revision: a writer that has read the deployment without this unit must not overwrite it.
        record.revision = id::new_id();
        record.updated_at = now;
        add_target(&mut record, unit)?;
        record.plan.units.push(unit.clone());
        let unit = UnitRecord {
            deployment: key.to_owned(),
            revision: record.revision.clone(),
            class: unit.class.clone(),
            environment: unit.environment.clone(),
            namespace: unit.namespace.clone(),
            spec: Some(unit.spec.clone()),
            requested: unit.requested,
            acknowledged: Some(Acknowledged {
                revision: record.revision.clone(),
                uid: class.uid.clone(),
                generation: class.generation,
                namespace: class.namespace.clone(),
            }),
            correlation_id: caller.correlation_id.clone(),
        };
        Ok(Self { before, units, record, unit })
    }

    fn transaction(&self, key: &UnitKey) -> Result<Transaction, Error> {
        let mut all = records_of(&self.units);
        all.insert(key.clone(), self.unit.clone());
        check_transaction_size(&self.record, &all)?;
        let mut change = Transaction::new();
        for (key, stored) in &self.units {
            if let Some(unit) = self.moved_to_new_revision(&stored.record) {
                let name = unit_key(key);
                let check = Check::Version(stored.version);
                change = change.check(name.clone(), check).put(name, encode(&unit)?);
            }
        }
        let (deployment, unit) = (deployment_key(&self.record.deployment.key), unit_key(key));
        Ok(change
            .check(deployment.clone(), check_of(self.before.as_ref()))
            .check(unit.clone(), Check::Absent)
            .put(deployment, encode(&self.record)?)
            .put(unit, encode(&self.unit)?))
    }

    /// A unit of the former revision has the same spec in the new one, and isn't sent again.
    fn moved_to_new_revision(&self, unit: &UnitRecord) -> Option<UnitRecord> {
        let former = &self.before.as_ref()?.record.revision;
        if unit.revision != *former {
            return None;
        }
        let mut unit = unit.clone();
        unit.revision.clone_from(&self.record.revision);
        if let Some(it) = unit.acknowledged.as_mut().filter(|it| it.revision == *former) {
            it.revision.clone_from(&self.record.revision);
        }
        Some(unit)
    }
}

/// The record of a deployment that is known by an orphan only.
fn recovered_deployment(
    key: &str,
    class: &ClassRuntime,
    caller: &Caller,
    now: Timestamp,
) -> DeploymentRecord {
    DeploymentRecord {
        deployment: OClassDeployment {
            key: key.to_owned(),
            package: Some(class.package.clone()),
            version: class.package_version.parse().ok().map(|it| VersionRange::exact(&it)),
            ..OClassDeployment::default()
        },
        revision: String::new(),
        created_at: now,
        updated_at: now,
        updated_by: caller.name.clone(),
        correlation_id: caller.correlation_id.clone(),
        plan: Plan {
            deployment: key.to_owned(),
            package: class.package.clone(),
            version: class.package_version.clone(),
            ..Plan::default()
        },
        stage: Stage::RollingOut { since: now },
        former: None,
    }
}

/// A deployment adopts no unit while it may still be rolled back: that would delete the unit.
fn check_adoptable(record: &DeploymentRecord) -> Result<(), Error> {
    let key = &record.deployment.key;
    let (reason, detail) = match record.stage {
        Stage::Succeeded { .. } => return Ok(()),
        Stage::RollingOut { .. } if !rolls_back_on_failure(&record.deployment) => return Ok(()),
        Stage::Deleting { .. } => ("DELETING", format!("{key} is being deleted")),
        Stage::RollingOut { .. } | Stage::RollingBack { .. } | Stage::RolledBack { .. } => {
            let detail = format!(
                "{key} may be rolled back, which would delete this unit: adopt it when the \
                 deployment has succeeded"
            );
            ("NOT_SETTLED", detail)
        }
    };
    Err(Error::Conflict { reason, detail, blockers: vec![key.clone()] })
}

/// Extends the deployment's classes and targets by those of a unit.
fn add_target(record: &mut DeploymentRecord, unit: &UnitPlan) -> Result<(), Error> {
    let (units, deployment) = (&record.plan.units, &mut record.deployment);
    if units.iter().any(|it| it.environment.is_empty() != unit.environment.is_empty()) {
        return Err(Error::Conflict {
            reason: "ENVIRONMENTS",
            detail: "either all units of a deployment have an environment, or none".to_owned(),
            blockers: vec![unit.id.clone()],
        });
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
            "stage": {"stage": "settled", "since": at},
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
