//! Creating and updating deployments.

use std::collections::BTreeSet;

use oprc_cp_storage::{Check, Transaction};
use oprc_models::{OClassDeployment, check_deployment};
use oprc_rest::{Deployment, Plan, Revision, UnitPlan};

use super::{Caller, DeploymentService};
use crate::{
    clock,
    error::Error,
    id,
    rollout::{
        DeploymentRecord, MAX_UNITS, Stage, UnitKey, UnitRecord, Units, desired_units,
        rollback_target,
    },
    state::{
        Attempt, DeploymentWithUnits, Versioned, VersionedUnit, check_transaction_size,
        schema::{MAX_REVISIONS, deployment_key, encode, revision_key, unit_key},
    },
};

impl DeploymentService {
    /// Fails if the deployment exists.
    pub async fn create(
        &self,
        deployment: OClassDeployment,
        caller: &Caller,
    ) -> Result<Deployment, Error> {
        if self.cache.deployment(&deployment.key).is_some() {
            return Err(already_exists(&deployment.key));
        }
        self.apply(deployment, None, "created", caller).await.map(|(deployment, _)| deployment)
    }

    /// Creates or updates a deployment, which must be at `revision` if given. True if it was created.
    pub async fn put(
        &self,
        deployment: OClassDeployment,
        revision: Option<&str>,
        caller: &Caller,
    ) -> Result<(Deployment, bool), Error> {
        self.apply(deployment, revision, "updated", caller).await
    }

    pub(super) async fn apply(
        &self,
        deployment: OClassDeployment,
        revision: Option<&str>,
        cause: &str,
        caller: &Caller,
    ) -> Result<(Deployment, bool), Error> {
        check_deployment(&deployment)?;
        let package = deployment.package.as_deref().unwrap_or_default();
        let _lock = self.package_locks.lock(package).await?;
        let deployment = &deployment;
        let build = || async move {
            let (before, units) = self.cache.deployment_with_units(&deployment.key);
            check_precondition(before.as_ref(), revision, cause == "created")?;
            let created = before.is_none();
            let mut plan = self.plan(deployment, &[]).await?;
            pin_namespaces(&mut plan, |key| self.cache.unit(key))?;
            if before.as_ref().is_some_and(|it| is_unchanged(&it.record, deployment, &plan)) {
                return Ok(Attempt::Done((None, false)));
            }
            let before = (before, units);
            let (change, record) = self.change(deployment, plan, before, cause, caller).await?;
            Ok(Attempt::Commit(change, (Some(record), created)))
        };
        let (changed, created) = self.cache.commit_with_retry(build).await?;
        if let Some(record) = changed {
            let kind = if created { "deployment.created" } else { "deployment.updated" };
            self.publish_change(kind, &record);
        }
        Ok((self.get(&deployment.key)?, created))
    }

    /// The transaction that stores a new revision.
    pub(super) async fn change(
        &self,
        deployment: &OClassDeployment,
        plan: Plan,
        (before, units): DeploymentWithUnits,
        cause: &str,
        caller: &Caller,
    ) -> Result<(Transaction, DeploymentRecord), Error> {
        let key = &deployment.key;
        let record = new_record(deployment, plan, before.as_ref(), caller)?;
        let desired = desired_units(
            Some((&record.revision, &record.plan)),
            key,
            &record.correlation_id,
            &records_of(&units),
        );
        check_unit_count(&record, &desired)?;
        check_transaction_size(&record, &desired)?;
        let name = deployment_key(key);
        let mut change = Transaction::new()
            .check(name.clone(), check_of(before.as_ref()))
            .put(name, encode(&record)?)
            .fenced(&self.lease);
        for (unit, record) in &desired {
            let known = units.iter().find(|(key, _)| key == unit).map(|(_, stored)| stored.clone());
            // A unit that is only left to be deleted may be taken over; one of another deployment
            // conflicts.
            let known = known
                .or_else(|| self.cache.unit(unit).filter(|stored| stored.record.spec.is_none()));
            let name = unit_key(unit);
            change =
                change.check(name.clone(), check_of(known.as_ref())).put(name, encode(record)?);
        }
        let change = self.add_revision(change, &record, cause, caller).await?;
        let change = self.registry.reference(change, &record.plan.package, &record.plan.version)?;
        Ok((change, record))
    }

    /// Adds the record's revision to the history, and deletes the oldest ones.
    pub(super) async fn add_revision(
        &self,
        mut change: Transaction,
        record: &DeploymentRecord,
        cause: &str,
        caller: &Caller,
    ) -> Result<Transaction, Error> {
        let key = &record.deployment.key;
        let history = self.cache.store().list(&revision_key(key, "")).await?.entries;
        let surplus = (history.len() + 1).saturating_sub(MAX_REVISIONS);
        for entry in history.into_iter().take(surplus) {
            change = change.delete(entry.key);
        }
        let revision = Revision {
            revision: record.revision.clone(),
            at: record.updated_at.to_string(),
            by: caller.name.clone(),
            cause: cause.to_owned(),
            version: record.plan.version.clone(),
            deployment: record.deployment.clone(),
            outcome: String::new(),
        };
        Ok(change.put(revision_key(key, &record.revision), encode(&revision)?))
    }
}

pub(super) fn check_of<T>(stored: Option<&Versioned<T>>) -> Check {
    stored.map_or(Check::Absent, |stored| Check::Version(stored.version))
}

pub(super) fn records_of(units: &[VersionedUnit]) -> Units {
    units.iter().map(|(key, stored)| (key.clone(), stored.record.as_ref().clone())).collect()
}

/// A rollback writes the units of this plan and of the former one in one transaction.
fn check_unit_count(record: &DeploymentRecord, desired: &Units) -> Result<(), Error> {
    let former = record.former.iter().flat_map(|former| &former.plan.units);
    let former = former.map(|unit| (unit.cluster.clone(), unit.id.clone()));
    let count = desired.keys().cloned().chain(former).collect::<BTreeSet<UnitKey>>().len();
    if count <= MAX_UNITS {
        return Ok(());
    }
    let message = format!("{count} units, including former ones; the maximum is {MAX_UNITS}");
    Err(Error::Parameter { field: "deployment", message })
}

pub(super) fn check_precondition(
    before: Option<&Versioned<DeploymentRecord>>,
    revision: Option<&str>,
    must_be_new: bool,
) -> Result<(), Error> {
    match (before.map(|stored| &stored.record), revision) {
        (Some(record), Some(revision)) if record.revision != revision => {
            Err(Error::Changed(record.revision.clone()))
        }
        (None, Some(_)) => Err(Error::Changed("none".to_owned())),
        (Some(record), _) if must_be_new => Err(already_exists(&record.deployment.key)),
        _ => Ok(()),
    }
}

/// Keeps units in their namespaces. A unit is identified by its id alone: in another namespace it
/// would be created again and the old object left over.
pub(super) fn pin_namespaces(
    plan: &mut Plan,
    stored: impl Fn(&UnitKey) -> Option<Versioned<UnitRecord>>,
) -> Result<(), Error> {
    for unit in &mut plan.units {
        let known = stored(&(unit.cluster.clone(), unit.id.clone()));
        match known.map(|stored| stored.record.namespace.clone()) {
            Some(known) if unit.namespace.is_empty() => unit.namespace = known,
            Some(known) if unit.namespace != known => {
                let detail = "the namespace of a deployment cannot be changed: delete it and create \
                              it again";
                return Err(Error::Conflict {
                    reason: "NAMESPACE_FIXED",
                    detail: detail.to_owned(),
                    blockers: vec![unit.id.clone()],
                });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether exactly this is rolled out or rolling out. A revision that was rolled back is tried
/// again.
fn is_unchanged(record: &DeploymentRecord, deployment: &OClassDeployment, plan: &Plan) -> bool {
    let units = |plan: &Plan| -> Vec<UnitPlan> {
        // The wording of reasons may have changed.
        let bare = |unit: &UnitPlan| UnitPlan { reasons: Vec::new(), ..unit.clone() };
        plan.units.iter().map(bare).collect()
    };
    matches!(record.stage, Stage::RollingOut { .. } | Stage::Succeeded { .. })
        && record.deployment == *deployment
        && record.plan.version == plan.version
        && units(&record.plan) == units(plan)
}

fn already_exists(key: &str) -> Error {
    Error::Conflict {
        reason: "EXISTS",
        detail: format!("the deployment {key:?} already exists"),
        blockers: vec![key.to_owned()],
    }
}

fn new_record(
    deployment: &OClassDeployment,
    plan: Plan,
    before: Option<&Versioned<DeploymentRecord>>,
    caller: &Caller,
) -> Result<DeploymentRecord, Error> {
    let now = clock::now();
    let before = before.map(|stored| stored.record.as_ref());
    if before.is_some_and(DeploymentRecord::is_deleting) {
        let key = &deployment.key;
        let detail = format!("{key} is being deleted: create it again afterwards");
        return Err(super::conflict("DELETING", detail));
    }
    Ok(DeploymentRecord {
        deployment: deployment.clone(),
        revision: id::new_id(),
        created_at: before.map_or(now, |before| before.created_at),
        updated_at: now,
        updated_by: caller.name.clone(),
        correlation_id: caller.correlation_id.clone(),
        plan,
        stage: Stage::RollingOut { since: now },
        former: before.and_then(|before| rollback_target(before, deployment)),
    })
}
