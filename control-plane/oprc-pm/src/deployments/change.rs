//! Changes of what is wanted.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use oprc_cp_storage::{Check, Error as StoreError, Transaction};
use oprc_models::{OClassDeployment, VersionRange, check_deployment};
use oprc_rest::{Deployment, Event, Plan, Revision, UnitPlan};
use tokio::time::timeout;

use super::{
    Caller, Deployments, Kept, UnitKey, Whole,
    book::{PREFIX, SEEN},
};
use crate::{
    dispatcher::{Units, check_room, former_of, units_of},
    error::Error,
    records::{self, DeploymentRecord, REVISIONS, Stage, UNITS, UnitRecord},
    stamp,
};

/// How long something is tried again that others came before: what is driven changes with each call.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

impl Deployments {
    /// Makes a deployment; refused where there is one.
    pub async fn create(
        &self,
        deployment: OClassDeployment,
        caller: &Caller,
    ) -> Result<Deployment, Error> {
        if self.book.deployment(&deployment.key).is_some() {
            return Err(exists(&deployment.key));
        }
        self.apply(deployment, None, "created", caller).await.map(|(deployment, _)| deployment)
    }

    /// Makes a deployment or changes it, if it is still at that revision where one is given.
    /// Whether it was made is told too.
    pub async fn put(
        &self,
        deployment: OClassDeployment,
        revision: Option<&str>,
        caller: &Caller,
    ) -> Result<(Deployment, bool), Error> {
        self.apply(deployment, revision, "updated", caller).await
    }

    /// Brings a deployment back to what was wanted at a former revision; the one before, where none
    /// is given. It is planned anew, and a revision of its own. It must be at the revision that is
    /// expected, where one is.
    pub async fn rollback(
        &self,
        key: &str,
        to: Option<&str>,
        expected: Option<&str>,
        caller: &Caller,
    ) -> Result<Deployment, Error> {
        let kept = self.book.deployment(key).ok_or_else(|| Error::not_found("deployment", key))?;
        let now = &kept.record.revision;
        if expected.is_some_and(|expected| expected != now) {
            return Err(Error::Changed(now.clone()));
        }
        let history = self.history(key).await?;
        let found = history.into_iter().find(|revision| match to {
            Some(to) => revision.revision == to,
            None => revision.revision < *now,
        });
        let found = found.ok_or_else(|| {
            Error::not_found("revision", to.map_or_else(|| format!("before {now}"), str::to_owned))
        })?;
        let mut deployment = found.deployment;
        // The version that it was, not the newest that would do now.
        if !found.version.is_empty() {
            let exact = found.version.parse().ok().map(|it| VersionRange::exact(&it));
            deployment.version = exact.or(deployment.version);
        }
        let cause = format!("rollback to {}", found.revision);
        let (deployment, _) = self.apply(deployment, Some(now), &cause, caller).await?;
        Ok(deployment)
    }

    async fn apply(
        &self,
        deployment: OClassDeployment,
        revision: Option<&str>,
        cause: &str,
        caller: &Caller,
    ) -> Result<(Deployment, bool), Error> {
        check_deployment(&deployment)?;
        // Others don't wait in turn for a cluster that is slow to tell.
        self.clusters.refresh().await;
        let _turn = self.turns.of(deployment.package.as_deref().unwrap_or_default()).await?;
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let (before, units) = self.book.whole(&deployment.key);
            expect(before.as_ref(), revision, cause == "created")?;
            let made = before.is_none();
            let mut plan = self.plan(&deployment, &[]).await?;
            stay(&mut plan, |key| self.book.unit(key))?;
            if before.as_ref().is_some_and(|kept| is_same(&kept.record, &deployment, &plan)) {
                return Ok((self.get(&deployment.key)?, false));
            }
            let (change, record) =
                self.change(&deployment, plan, (before, units), cause, caller).await?;
            let checks = change.checks.clone();
            match self.store.commit(change).await {
                Ok(at) => {
                    self.book.reach(at).await?;
                    let kind = if made { "deployment.created" } else { "deployment.updated" };
                    self.tell(kind, &record);
                    return Ok((self.get(&deployment.key)?, made));
                }
                // The deployment, its package or a unit was changed meanwhile: look again.
                Err(StoreError::Conflict { key, .. }) => self.catch_up(&checks, &key).await,
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Unavailable("others change it all the time; try again".to_owned()))
    }

    /// Waits until an entry isn't any more as it was checked to be: what came between is read then.
    pub(super) async fn catch_up(&self, checks: &[(String, Check)], key: &str) {
        let check = checks.iter().find(|(checked, _)| checked == key).map(|(_, check)| *check);
        if !key.starts_with(PREFIX) {
            return self.registry.passed(key, check).await;
        }
        let mut changes = self.book.changes();
        let same = || check.is_some_and(|check| check.holds(self.book.version(key)));
        let passed = async { while same() && changes.changed().await.is_ok() {} };
        if timeout(SEEN, passed).await.is_err() {
            tracing::warn!(key, "what others have changed isn't read yet");
        }
    }

    /// Everything that a change of what is wanted stores.
    pub(super) async fn change(
        &self,
        deployment: &OClassDeployment,
        plan: Plan,
        (before, units): Whole,
        cause: &str,
        caller: &Caller,
    ) -> Result<(Transaction, DeploymentRecord), Error> {
        let key = &deployment.key;
        let record = record(deployment, plan, before.as_ref(), caller)?;
        let existing: Units =
            units.iter().map(|(key, kept)| (key.clone(), kept.record.as_ref().clone())).collect();
        let wanted = units_of(
            Some((&record.revision, &record.plan)),
            key,
            &record.correlation_id,
            &existing,
        );
        // Going back writes all of them too, and those of before.
        let former = record.former.iter().flat_map(|former| &former.plan.units);
        let former = former.map(|unit| (unit.cluster.clone(), unit.id.clone()));
        let all: BTreeSet<UnitKey> = wanted.keys().cloned().chain(former).collect();
        if all.len() > UNITS {
            let message =
                format!("{} units, with those of before; {UNITS} are the most", all.len());
            return Err(Error::Parameter { field: "deployment", message });
        }
        check_room(&record, &wanted)?;
        let name = records::deployment(key);
        let check = before.as_ref().map_or(Check::Absent, |kept| Check::Version(kept.version));
        let mut change = Transaction::new()
            .check(name.clone(), check)
            .put(name, records::write(&record)?)
            .fenced(&self.ownership);
        for (unit, record) in &wanted {
            let name = records::unit(&unit.0, &unit.1);
            let known = units.iter().find(|(key, _)| key == unit);
            // One that another deployment has, or that is still going, stands in the way.
            let check = match (known, self.book.unit(unit)) {
                (Some((_, kept)), _) => Check::Version(kept.version),
                (None, Some(kept)) if kept.record.spec.is_none() => Check::Version(kept.version),
                (None, _) => Check::Absent,
            };
            change = change.check(name.clone(), check).put(name, records::write(record)?);
        }
        let revision = Revision {
            revision: record.revision.clone(),
            at: record.updated_at.clone(),
            by: caller.name.clone(),
            cause: cause.to_owned(),
            version: record.plan.version.clone(),
            deployment: deployment.clone(),
            outcome: String::new(),
        };
        change = change.put(records::revision(key, &record.revision), records::write(&revision)?);
        for surplus in self.surplus(key).await? {
            change = change.delete(surplus);
        }
        let change = self.registry.hold(change, &record.plan.package, &record.plan.version)?;
        Ok((change, record))
    }

    /// The entries of revisions that go when another one comes.
    pub(super) async fn surplus(&self, key: &str) -> Result<Vec<String>, Error> {
        let history = self.store.list(&records::revision(key, "")).await?.entries;
        let surplus = (history.len() + 1).saturating_sub(REVISIONS);
        Ok(history.into_iter().take(surplus).map(|entry| entry.key).collect())
    }

    /// Has a deployment taken away: it is gone when all of its units are.
    pub async fn delete(
        &self,
        key: &str,
        revision: Option<&str>,
        caller: &Caller,
    ) -> Result<Deployment, Error> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let (kept, units) = self.book.whole(key);
            let kept = kept.ok_or_else(|| Error::not_found("deployment", key))?;
            if revision.is_some_and(|revision| revision != kept.record.revision) {
                return Err(Error::Changed(kept.record.revision.clone()));
            }
            if matches!(kept.record.stage, Stage::Deleting { .. }) {
                return self.get(key);
            }
            let record = DeploymentRecord {
                stage: Stage::Deleting { since: stamp::text(stamp::now()) },
                former: None,
                correlation_id: caller.correlation_id.clone(),
                updated_by: caller.name.clone(),
                ..kept.record.as_ref().clone()
            };
            let name = records::deployment(key);
            let mut change = Transaction::new()
                .check(name.clone(), Check::Version(kept.version))
                .put(name, records::write(&record)?)
                .fenced(&self.ownership);
            for (unit, kept) in &units {
                let gone = UnitRecord {
                    spec: None,
                    correlation_id: caller.correlation_id.clone(),
                    ..kept.record.as_ref().clone()
                };
                let name = records::unit(&unit.0, &unit.1);
                change = change
                    .check(name.clone(), Check::Version(kept.version))
                    .put(name, records::write(&gone)?);
            }
            let checks = change.checks.clone();
            match self.store.commit(change).await {
                Ok(at) => {
                    self.book.reach(at).await?;
                    self.tell("deployment.updated", &record);
                    let whole = (record, units);
                    // It may be gone already.
                    return Ok(self.get(key).unwrap_or_else(|_| self.document(&whole.0, &whole.1)));
                }
                Err(StoreError::Conflict { key, .. }) => self.catch_up(&checks, &key).await,
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Unavailable("it changes all the time; try again".to_owned()))
    }

    pub(super) fn tell(&self, kind: &str, record: &DeploymentRecord) {
        self.events.publish(Event {
            kind: kind.to_owned(),
            subject: record.deployment.key.clone(),
            message: format!("revision {}", record.revision),
            correlation_id: record.correlation_id.clone(),
            ..Event::default()
        });
    }
}

/// Refuses what isn't meant for what is there.
pub(super) fn expect(
    before: Option<&Kept<DeploymentRecord>>,
    revision: Option<&str>,
    new: bool,
) -> Result<(), Error> {
    match (before.map(|kept| &kept.record), revision) {
        (Some(record), Some(revision)) if record.revision != revision => {
            Err(Error::Changed(record.revision.clone()))
        }
        (None, Some(_)) => Err(Error::Changed("nothing".to_owned())),
        (Some(record), _) if new => Err(exists(&record.deployment.key)),
        _ => Ok(()),
    }
}

/// Has units stay in the namespaces that they are in. A unit is known by its id alone: in another
/// namespace it would be made anew, and left where it was.
pub(super) fn stay(
    plan: &mut Plan,
    known: impl Fn(&UnitKey) -> Option<Kept<UnitRecord>>,
) -> Result<(), Error> {
    for unit in &mut plan.units {
        let known = known(&(unit.cluster.clone(), unit.id.clone()));
        match known.map(|kept| kept.record.namespace.clone()) {
            Some(known) if unit.namespace.is_empty() => unit.namespace = known,
            Some(known) if unit.namespace != known => {
                let detail = "the namespace of a deployment can't be changed: delete it, and make \
                              it anew";
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

/// Whether just this is on its way, or there. What was rolled back is tried again.
fn is_same(record: &DeploymentRecord, deployment: &OClassDeployment, plan: &Plan) -> bool {
    let wanted = |plan: &Plan| -> Vec<UnitPlan> {
        // Why it is so may be told in other words by now.
        let bare = |unit: &UnitPlan| UnitPlan { reasons: Vec::new(), ..unit.clone() };
        plan.units.iter().map(bare).collect()
    };
    matches!(record.stage, Stage::Driving { .. } | Stage::Settled { .. })
        && record.deployment == *deployment
        && record.plan.version == plan.version
        && wanted(&record.plan) == wanted(plan)
}

fn exists(key: &str) -> Error {
    Error::Conflict {
        reason: "EXISTS",
        detail: format!("there is a deployment {key:?} already"),
        blockers: vec![key.to_owned()],
    }
}

/// The record of what is wanted from now on.
fn record(
    deployment: &OClassDeployment,
    plan: Plan,
    before: Option<&Kept<DeploymentRecord>>,
    caller: &Caller,
) -> Result<DeploymentRecord, Error> {
    let now = stamp::text(stamp::now());
    let before = before.map(|kept| kept.record.as_ref());
    if before.is_some_and(|before| matches!(before.stage, Stage::Deleting { .. })) {
        let key = &deployment.key;
        return Err(Error::Conflict {
            reason: "DELETING",
            detail: format!("{key} is being deleted; make it again when it is gone"),
            blockers: Vec::new(),
        });
    }
    Ok(DeploymentRecord {
        deployment: deployment.clone(),
        revision: stamp::id(),
        created_at: before.map_or_else(|| now.clone(), |it| it.created_at.clone()),
        updated_at: now.clone(),
        updated_by: caller.name.clone(),
        correlation_id: caller.correlation_id.clone(),
        plan,
        stage: Stage::Driving { since: now },
        former: before.and_then(|before| former_of(before, deployment)),
    })
}
