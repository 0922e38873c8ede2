//! Units that a cluster has and that nobody here knows: after a lost store, all of them.

use std::{collections::BTreeSet, time::Instant};

use oprc_cp_storage::{Check, Error as StoreError, Transaction};
use oprc_models::{OClassDeployment, VersionRange, check_deployment};
use oprc_rest::{ClassRuntime, Deployment, Plan, Reason, Revision, UnitPlan};
use tokio::time::timeout;

use super::{Caller, Deployments, RuntimeFilter, UnitKey, change::PATIENCE};
use crate::{
    dispatcher::{Seen, Units, check_room, goes_back},
    error::Error,
    planner::parse_unit_id,
    records::{self, DeploymentRecord, Stage, Taken, UNITS, UnitRecord},
    stamp,
};

/// How many orphans are looked at.
const MOST: usize = super::PAGE;

impl Deployments {
    /// Units that carry a package manager's mark, and that this one doesn't know.
    pub fn orphans(&self) -> Vec<ClassRuntime> {
        let filter =
            RuntimeFilter { ownership: Some("orphan".to_owned()), ..RuntimeFilter::default() };
        self.class_runtimes(&filter, None, MOST).items
    }

    fn orphan(&self, cluster: &str, id: &str) -> Result<ClassRuntime, Error> {
        let link = self.clusters.link(cluster);
        let link = link.ok_or_else(|| Error::not_found("cluster", cluster))?;
        let observed = link.observed();
        let class = observed.class(id, "").ok_or_else(|| Error::not_found("class runtime", id))?;
        let document = self.class_document(cluster, class, observed.contact());
        let known = self.book.unit(&(cluster.to_owned(), id.to_owned()));
        if class.deleting || known.is_some_and(|kept| kept.record.spec.is_none()) {
            return Err(Error::Conflict {
                reason: "DELETING",
                detail: format!("{id} on {cluster} is going already"),
                blockers: Vec::new(),
            });
        }
        if document.ownership == "orphan" {
            return Ok(document);
        }
        Err(Error::Conflict {
            reason: "NO_ORPHAN",
            detail: format!("{id} on {cluster} is {}, no orphan", document.ownership),
            blockers: document.deployment.into_iter().collect(),
        })
    }

    /// Has a cluster take an orphan away. That is stored as for any unit, so that whoever comes to
    /// want it meanwhile is met there, and a cluster that is away does it when it is back.
    pub async fn delete_orphan(
        &self,
        cluster: &str,
        id: &str,
        caller: &Caller,
    ) -> Result<(), Error> {
        let orphan = self.orphan(cluster, id)?;
        let parts = parse_unit_id(id).ok_or_else(|| Error::not_found("orphan", id))?;
        let going = UnitRecord {
            // It is no deployment's: none is held up by it, and none holds it up.
            deployment: String::new(),
            revision: stamp::id(),
            class: parts.class.to_owned(),
            environment: parts.environment.to_owned(),
            namespace: orphan.unit.namespace,
            spec: None,
            taken: None,
            correlation_id: caller.correlation_id.clone(),
        };
        let name = records::unit(cluster, id);
        let change = Transaction::new()
            .check(name.clone(), Check::Absent)
            .put(name, records::write(&going)?)
            .fenced(&self.ownership);
        match self.store.commit(change).await {
            Ok(at) => self.book.reach(at).await?,
            Err(StoreError::Conflict { .. }) => {
                return Err(Error::Conflict {
                    reason: "NO_ORPHAN",
                    detail: format!("{id} on {cluster} is no orphan any more"),
                    blockers: Vec::new(),
                });
            }
            Err(error) => return Err(error.into()),
        }
        let key = (cluster.to_owned(), id.to_owned());
        match timeout(PATIENCE, self.refusal(&key, &going)).await {
            Ok(Some(why)) => self.keep_orphan(&key, &going, why).await,
            // It goes, or will when the cluster answers.
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Waits until a cluster takes something away, or says why it won't.
    async fn refusal(&self, key: &UnitKey, going: &UnitRecord) -> Option<String> {
        let link = self.clusters.link(&key.0)?;
        let (mut stored, mut told) = (self.book.changes(), link.changes());
        let mut troubles = self.troubles.changes();
        loop {
            let kept = self.book.unit(key)?;
            if kept.record.revision != going.revision {
                return None;
            }
            match link.observed().seen(&key.1, going.place()) {
                Seen::Present(sight) if !sight.deleting => {}
                Seen::Present(_) | Seen::Absent | Seen::Unknown => return None,
            }
            if let Some(why) = self.troubles.refused(key, going) {
                return Some(why);
            }
            tokio::select! {
                _ = stored.changed() => {}
                _ = told.changed() => {}
                _ = troubles.changed() => {}
            }
        }
    }

    /// What a cluster won't take away is an orphan as before.
    async fn keep_orphan(
        &self,
        key: &UnitKey,
        going: &UnitRecord,
        why: String,
    ) -> Result<(), Error> {
        let kept = self.book.unit(key).filter(|kept| kept.record.revision == going.revision);
        // Somebody wants it by now: it isn't taken away any more.
        let Some(kept) = kept else { return Ok(()) };
        let (cluster, id) = key;
        let name = records::unit(cluster, id);
        let change = Transaction::new()
            .check(name.clone(), Check::Version(kept.version))
            .delete(name)
            .fenced(&self.ownership);
        match self.store.commit(change).await {
            Ok(at) => self.book.reach(at).await?,
            Err(StoreError::Conflict { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        Err(Error::Conflict {
            reason: "REFUSED",
            detail: format!("{cluster} won't delete {id}: {why}"),
            blockers: Vec::new(),
        })
    }

    /// Makes an orphan a unit of the deployment that its id names, which is made if there is none.
    /// It is taken as it is: nothing is sent, so nothing of it is restarted.
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
            return Err(Error::Parameter {
                field: "deployment",
                message: format!(
                    "the unit was made for {:?}, and its id says so",
                    parts.deployment
                ),
            });
        }
        let link = self.clusters.link(cluster);
        let link = link.ok_or_else(|| Error::not_found("cluster", cluster))?;
        let namespace = orphan.unit.namespace.clone();
        let class = link.class(id, &namespace, &caller.correlation_id).await;
        let class = class
            .map_err(|status| Error::Unavailable(format!("{cluster}: {}", status.message())))?
            .ok_or_else(|| Error::not_found("class runtime", id))?;
        let spec = class.spec.as_ref().ok_or_else(|| Error::Conflict {
            reason: "UNREADABLE",
            detail: format!("what {id} is to be can't be read"),
            blockers: Vec::new(),
        })?;
        let spec =
            serde_json::to_value(spec).map_err(|error| Error::Internal(error.to_string()))?;
        let unit = UnitPlan {
            id: id.to_owned(),
            cluster: cluster.to_owned(),
            environment: parts.environment.to_owned(),
            namespace,
            class: parts.class.to_owned(),
            spec,
            reasons: vec![Reason {
                field: "unit".to_owned(),
                value: "adopted".to_owned(),
                because: "the cluster had it so".to_owned(),
            }],
        };
        self.store_adopted(deployment, &class, &unit, caller).await?;
        self.get(deployment)
    }

    async fn store_adopted(
        &self,
        key: &str,
        class: &oprc_grpc::deployment::ClassRuntime,
        unit: &UnitPlan,
        caller: &Caller,
    ) -> Result<(), Error> {
        let name = records::unit(&unit.cluster, &unit.id);
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let (change, record) = self.adoption(key, class, unit.clone(), caller).await?;
            let checks = change.checks.clone();
            match self.store.commit(change).await {
                Ok(at) => {
                    self.book.reach(at).await?;
                    self.tell("deployment.updated", &record);
                    return Ok(());
                }
                // The deployment or another of its units was changed meanwhile: look again.
                Err(StoreError::Conflict { key, .. }) if key != name => {
                    self.catch_up(&checks, &key).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Unavailable("others change it all the time; try again".to_owned()))
    }

    /// Everything that an adoption stores.
    async fn adoption(
        &self,
        key: &str,
        class: &oprc_grpc::deployment::ClassRuntime,
        unit: UnitPlan,
        caller: &Caller,
    ) -> Result<(Transaction, DeploymentRecord), Error> {
        let (kept, units) = self.book.whole(key);
        if units.len() >= UNITS {
            let message = format!("has {UNITS} units already");
            return Err(Error::Parameter { field: "deployment", message });
        }
        let now = stamp::text(stamp::now());
        let (revision, before) = (stamp::id(), kept.as_ref().map(|kept| &kept.record.revision));
        let mut record = match &kept {
            Some(kept) if matches!(kept.record.stage, Stage::Deleting { .. }) => {
                return Err(Error::Conflict {
                    reason: "DELETING",
                    detail: format!("{key} is being deleted"),
                    blockers: vec![key.to_owned()],
                });
            }
            Some(kept) if !stays(&kept.record) => {
                return Err(Error::Conflict {
                    reason: "NOT_SETTLED",
                    detail: format!(
                        "{key} goes back to what was before when it fails, without this unit: \
                         adopt it when the deployment is there"
                    ),
                    blockers: vec![key.to_owned()],
                });
            }
            // Who has seen it without this unit must not change it unseen.
            Some(kept) => {
                DeploymentRecord { revision: revision.clone(), ..kept.record.as_ref().clone() }
            }
            None => DeploymentRecord {
                deployment: OClassDeployment {
                    key: key.to_owned(),
                    package: Some(class.package.clone()),
                    version: class.package_version.parse().ok().map(|it| VersionRange::exact(&it)),
                    ..OClassDeployment::default()
                },
                revision: revision.clone(),
                created_at: now.clone(),
                updated_at: now.clone(),
                updated_by: caller.name.clone(),
                correlation_id: caller.correlation_id.clone(),
                plan: Plan {
                    deployment: key.to_owned(),
                    package: class.package.clone(),
                    version: class.package_version.clone(),
                    ..Plan::default()
                },
                stage: Stage::Driving { since: now.clone() },
                former: None,
            },
        };
        want(&mut record, &unit)?;
        record.updated_at = now;
        let adopted = UnitRecord {
            deployment: key.to_owned(),
            revision: record.revision.clone(),
            class: unit.class.clone(),
            environment: unit.environment.clone(),
            namespace: unit.namespace.clone(),
            spec: Some(unit.spec.clone()),
            taken: Some(Taken {
                revision: record.revision.clone(),
                uid: class.uid.clone(),
                generation: class.generation,
                namespace: class.namespace.clone(),
            }),
            correlation_id: caller.correlation_id.clone(),
        };
        let name = records::unit(&unit.cluster, &unit.id);
        let mut all: Units =
            units.iter().map(|(key, kept)| (key.clone(), kept.record.as_ref().clone())).collect();
        all.insert((unit.cluster.clone(), unit.id.clone()), adopted.clone());
        record.plan.units.push(unit);
        check_room(&record, &all)?;
        let entry = Revision {
            revision: record.revision.clone(),
            at: record.updated_at.clone(),
            by: caller.name.clone(),
            cause: "adopted".to_owned(),
            version: record.plan.version.clone(),
            deployment: record.deployment.clone(),
            outcome: String::new(),
        };
        let at = records::deployment(key);
        let check = kept.as_ref().map_or(Check::Absent, |kept| Check::Version(kept.version));
        let mut change = Transaction::new();
        for surplus in self.surplus(key).await? {
            change = change.delete(surplus);
        }
        for ((cluster, id), kept) in &units {
            let mut unit = kept.record.as_ref().clone();
            // What was as this revision wanted it, still is.
            if Some(&unit.revision) == before {
                unit.revision.clone_from(&revision);
                let taken = unit.taken.as_mut().filter(|taken| Some(&taken.revision) == before);
                if let Some(taken) = taken {
                    taken.revision.clone_from(&revision);
                }
                let name = records::unit(cluster, id);
                change = change
                    .check(name.clone(), Check::Version(kept.version))
                    .put(name, records::write(&unit)?);
            }
        }
        let change = change
            .check(at.clone(), check)
            .check(name.clone(), Check::Absent)
            .put(at, records::write(&record)?)
            .put(name, records::write(&adopted)?)
            .put(records::revision(key, &record.revision), records::write(&entry)?)
            .fenced(&self.ownership);
        Ok((change, record))
    }
}

/// Whether what is wanted doesn't give way to what was before.
fn stays(record: &DeploymentRecord) -> bool {
    match record.stage {
        Stage::Settled { .. } => true,
        Stage::Driving { .. } => !goes_back(&record.deployment),
        Stage::RollingBack { .. } | Stage::RolledBack { .. } | Stage::Deleting { .. } => false,
    }
}

/// Has a deployment want a unit, in such words that it still wants those that it has.
fn want(record: &mut DeploymentRecord, unit: &UnitPlan) -> Result<(), Error> {
    let (units, wanted) = (&record.plan.units, &mut record.deployment);
    if units.iter().any(|it| it.environment.is_empty() != unit.environment.is_empty()) {
        return Err(Error::Conflict {
            reason: "ENVIRONMENTS",
            detail: "a deployment's units are all in environments, or none is".to_owned(),
            blockers: vec![unit.id.clone()],
        });
    }
    if !wanted.classes().any(|class| class == unit.class) {
        wanted.classes.push(unit.class.clone());
    }
    // No names mean any: as soon as there is one, the others have to be there too.
    let clusters = units.iter().map(|unit| &unit.cluster);
    add(&mut wanted.target_clusters, clusters, &unit.cluster);
    if !unit.environment.is_empty() {
        add(&mut wanted.target_envs, units.iter().map(|unit| &unit.environment), &unit.environment);
    }
    check_deployment(wanted)?;
    Ok(())
}

fn add<'a>(to: &mut Vec<String>, known: impl Iterator<Item = &'a String>, name: &'a String) {
    if to.is_empty() {
        to.extend(known.filter(|it| !it.is_empty()).collect::<BTreeSet<_>>().into_iter().cloned());
    }
    if !to.contains(name) {
        to.push(name.clone());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(units: &[(&str, &str)]) -> DeploymentRecord {
        let units = units.iter().map(|(cluster, environment)| unit("A", cluster, environment));
        serde_json::from_value(json!({
            "deployment": {"key": "d", "package": "p", "class": "A"}, "revision": "r", "created_at": "", "updated_at": "",
            "correlation_id": "", "stage": {"stage": "settled", "since": ""},
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
    fn what_is_adopted_takes_nothing_away() {
        let mut anywhere = record(&[("one", "")]);
        want(&mut anywhere, &unit("A", "two", "")).unwrap();
        assert_eq!(anywhere.deployment.classes().collect::<Vec<_>>(), ["A"]);
        assert_eq!(anywhere.deployment.target_clusters, ["one", "two"]);
        want(&mut anywhere, &unit("B", "two", "")).unwrap();
        assert_eq!(anywhere.deployment.classes().collect::<Vec<_>>(), ["A", "B"]);

        let mut staged = record(&[("one", "test")]);
        want(&mut staged, &unit("A", "one", "prod")).unwrap();
        assert_eq!(staged.deployment.target_envs, ["test", "prod"]);
        want(&mut staged, &unit("A", "one", "")).unwrap_err();
    }
}
