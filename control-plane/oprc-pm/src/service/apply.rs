//! Creating and updating deployments.

use std::collections::BTreeSet;

use oprc_cp_storage::Transaction;
use oprc_models::{OClassDeployment, check_deployment};
use oprc_rest::{Deployment, Plan, Revision, UnitPlan};

use super::{Caller, DeploymentService, Precondition};
use crate::{
    clock,
    error::Error,
    id,
    rollout::{
        DeploymentRecord, MAX_UNITS, Stage, Units, desired_units, planned_key, rollback_target,
    },
    state::{
        Attempt, DeploymentWithUnits, check_transaction_size, records_of, replace_deployment,
        schema::{MAX_REVISIONS, encode, revision_key},
    },
};

impl DeploymentService {
    /// Fails if the deployment exists.
    pub async fn create(
        &self,
        deployment: OClassDeployment,
        caller: &Caller,
    ) -> Result<Deployment, Error> {
        let created = self.upsert(deployment, &Precondition::Absent, caller).await;
        created.map(|(deployment, _)| deployment)
    }

    /// Creates or updates a deployment; true if it was created.
    pub async fn upsert(
        &self,
        deployment: OClassDeployment,
        precondition: &Precondition,
        caller: &Caller,
    ) -> Result<(Deployment, bool), Error> {
        let cause = if *precondition == Precondition::Absent { "created" } else { "updated" };
        self.apply(deployment, precondition, cause, caller).await
    }

    /// The plan that [`Self::upsert`] would store, or the error it would return.
    pub async fn plan_upsert(
        &self,
        deployment: &OClassDeployment,
        precondition: &Precondition,
        caller: &Caller,
    ) -> Result<Plan, Error> {
        check_deployment(deployment)?;
        let before = self.cache.deployment_with_units(&deployment.key);
        precondition.check(before.0.as_ref())?;
        let plan = self.plan_in_place(deployment).await?;
        // Built for its errors only.
        self.change(deployment, plan.clone(), before, "dry run", caller).await?;
        Ok(plan)
    }

    pub(super) async fn apply(
        &self,
        deployment: OClassDeployment,
        precondition: &Precondition,
        cause: &str,
        caller: &Caller,
    ) -> Result<(Deployment, bool), Error> {
        check_deployment(&deployment)?;
        let deployment = &deployment;
        let found = self.cache.deployment(&deployment.key);
        // Checked again with the lock; here so that a failure needn't wait for it.
        precondition.check(found.as_ref())?;
        let precondition = &precondition.pinned(found);
        let package = deployment.package.as_deref().unwrap_or_default();
        let _lock = self.package_locks.lock(package).await?;
        let build = || async move {
            let before = self.cache.deployment_with_units(&deployment.key);
            precondition.check(before.0.as_ref())?;
            let created = before.0.is_none();
            let plan = self.plan_in_place(deployment).await?;
            if before.0.as_ref().is_some_and(|it| is_unchanged(&it.record, deployment, &plan)) {
                return Ok(Attempt::Done((None, false)));
            }
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

    /// A plan that keeps units in their namespaces. A unit is identified by its id alone: in another
    /// namespace it would be created again and the old object left over.
    async fn plan_in_place(&self, deployment: &OClassDeployment) -> Result<Plan, Error> {
        let mut plan = self.plan(deployment, &[]).await?;
        for unit in &mut plan.units {
            let Some(known) = self.cache.unit(&planned_key(unit)) else { continue };
            if unit.namespace.is_empty() {
                unit.namespace.clone_from(&known.record.namespace);
            } else if unit.namespace != known.record.namespace {
                let detail = "the namespace of a deployment cannot be changed: delete it and create \
                              it again";
                return Err(Error::conflict("NAMESPACE_FIXED", detail, &[&unit.id]));
            }
        }
        Ok(plan)
    }

    /// The transaction that stores a new revision.
    async fn change(
        &self,
        deployment: &OClassDeployment,
        plan: Plan,
        (before, mut known): DeploymentWithUnits,
        cause: &str,
        caller: &Caller,
    ) -> Result<(Transaction, DeploymentRecord), Error> {
        let key = &deployment.key;
        let former = before.as_ref().map(|stored| stored.record.as_ref());
        if former.is_some_and(DeploymentRecord::is_deleting) {
            let detail = format!("{key} is being deleted: create it again afterwards");
            return Err(Error::conflict("DELETING", detail, &[]));
        }
        let record = new_record(deployment, plan, former, caller);
        let units = desired_units(&record, &records_of(&known));
        check_unit_count(&record, &units)?;
        check_transaction_size(&record, &units)?;
        // A unit that is only left to be deleted may be taken over; one of another deployment
        // conflicts.
        let stored = units.keys().filter_map(|key| Some((key.clone(), self.cache.unit(key)?)));
        known.extend(stored.filter(|(_, stored)| !stored.record.desired));
        let change = replace_deployment(key, before.as_ref(), Some(&record), &known, &units)?;
        let change = self.add_revision(change.fenced(&self.lease), &record, cause, caller).await?;
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

/// A rollback writes the units of this plan and of the former one in one transaction.
fn check_unit_count(record: &DeploymentRecord, desired: &Units) -> Result<(), Error> {
    let former = record.former.iter().flat_map(|former| &former.plan.units).map(planned_key);
    let count = desired.keys().cloned().chain(former).collect::<BTreeSet<_>>().len();
    if count <= MAX_UNITS {
        return Ok(());
    }
    let message = format!("{count} units, including former ones; the maximum is {MAX_UNITS}");
    Err(Error::Parameter { field: "deployment", message })
}

/// Whether exactly this is rolled out or rolling out. A revision that was rolled back is tried
/// again.
fn is_unchanged(record: &DeploymentRecord, deployment: &OClassDeployment, plan: &Plan) -> bool {
    let units = |plan: &Plan| -> Vec<UnitPlan> {
        // The wording of reasons may have changed.
        let bare = |unit: &UnitPlan| UnitPlan { reasons: Vec::new(), ..unit.clone() };
        plan.units.iter().map(bare).collect()
    };
    matches!(record.stage, Stage::RollingOut | Stage::Succeeded)
        && record.deployment == *deployment
        && record.plan.version == plan.version
        && units(&record.plan) == units(plan)
}

pub(super) fn new_record(
    deployment: &OClassDeployment,
    plan: Plan,
    before: Option<&DeploymentRecord>,
    caller: &Caller,
) -> DeploymentRecord {
    let now = clock::now();
    DeploymentRecord {
        deployment: deployment.clone(),
        revision: id::new_id(),
        created_at: before.map_or(now, |before| before.created_at),
        updated_at: now,
        updated_by: caller.name.clone(),
        correlation_id: caller.correlation_id.clone(),
        plan,
        stage: Stage::RollingOut,
        stage_since: now,
        former: before.and_then(|before| rollback_target(before, deployment)),
    }
}
