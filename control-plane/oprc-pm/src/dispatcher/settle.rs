//! Moves deployments on, and tells what has become of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use futures::{FutureExt as _, future::select_all};
use oprc_cp_storage::{Check, Error as StoreError, Transaction};
use oprc_rest::{Contact, DeploymentCondition, Event, Health, Revision, UnitStatus};
use tokio::sync::watch;

use super::{Dispatcher, Transition, outlook, perform};
use crate::{
    deployments::{self, Kept, KeptUnit, UnitKey},
    error::Error,
    planner::parse_unit_id,
    records::{self, DeploymentRecord},
    stamp,
};

const IDLE: Duration = Duration::from_hours(1);
/// After a transition that couldn't be stored.
const AGAIN: Duration = Duration::from_secs(1);
/// Clusters have so long to be heard of after the start, before it is told that they aren't.
const HEARD: Duration = Duration::from_secs(5);
/// Changes come in bursts: they are looked at together.
const TOGETHER: Duration = Duration::from_millis(20);

/// What was told last.
#[derive(Default)]
struct Told {
    /// Until when clusters may still be heard of for the first time.
    hearing: Option<Instant>,
    deployments: BTreeMap<String, (DeploymentCondition, String)>,
    units: BTreeMap<UnitKey, (oprc_rest::Condition, bool)>,
    clusters: BTreeMap<String, Health>,
    orphans: BTreeSet<UnitKey>,
    holds: BTreeMap<String, (bool, bool)>,
}

impl Dispatcher {
    pub(super) async fn settle(&self, woken: &watch::Sender<()>) {
        let (mut stored, mut troubles) = (self.book.changes(), self.troubles.changes());
        let mut links: Vec<_> = self.clusters.links().map(|link| link.changes()).collect();
        let mut told = Told { hearing: Some(Instant::now() + HEARD), ..Told::default() };
        loop {
            stored.borrow_and_update();
            troubles.borrow_and_update();
            for link in &mut links {
                link.borrow_and_update();
            }
            let wait = self.pass(&mut told, woken).await;
            let any_link = async {
                if links.is_empty() {
                    return std::future::pending().await;
                }
                select_all(links.iter_mut().map(|link| link.changed().map(drop).boxed())).await;
            };
            tokio::select! {
                Ok(()) = stored.changed() => {}
                Ok(()) = troubles.changed() => {}
                () = any_link => {}
                () = tokio::time::sleep(wait) => {}
            }
            tokio::time::sleep(TOGETHER).await;
        }
    }

    /// Looks at all deployments once. Tells when to look again.
    async fn pass(&self, told: &mut Told, woken: &watch::Sender<()>) -> Duration {
        self.tell_clusters(told);
        self.tell_orphans(told);
        let now = stamp::now();
        told.hearing = told.hearing.filter(|until| *until > Instant::now());
        let mut wait = told.hearing.map_or(IDLE, |until| until - Instant::now());
        let mut holds = BTreeMap::new();
        let deployments = self.book.deployments();
        for listed in &deployments {
            let key = &listed.record.deployment.key;
            let (Some(kept), units) = self.book.whole(key) else { continue };
            let views = self.views(&units);
            let outlook = outlook(&kept.record, &views, now, self.limits);
            if let Some(at) = outlook.again {
                let until = u64::try_from(at - now).unwrap_or_default();
                wait = wait.min(Duration::from_millis(until + 1));
            }
            if outlook.hold_deploys || outlook.hold_deletes {
                holds.insert(key.clone(), (outlook.hold_deploys, outlook.hold_deletes));
            }
            if let Some(transition) = outlook.transition {
                let next = perform(&transition, &kept.record, &views, now);
                match self.commit(&transition, next, &kept, &units).await {
                    Ok(()) => tracing::info!(deployment = key, ?transition, "moved on"),
                    Err(error) => {
                        tracing::warn!(deployment = key, ?transition, %error, "not stored");
                        wait = wait.min(AGAIN);
                    }
                }
            }
            self.tell(key, told);
        }
        let gone: Vec<_> = told
            .deployments
            .keys()
            .filter(|key| self.book.deployment(key).is_none())
            .cloned()
            .collect();
        for key in gone {
            told.deployments.remove(&key);
            self.events.publish(Event {
                kind: "deployment.deleted".to_owned(),
                subject: key,
                condition: "DELETED".to_owned(),
                ..Event::default()
            });
        }
        told.units.retain(|key, _| self.book.unit(key).is_some());
        if holds != told.holds {
            told.holds = holds;
            woken.send_replace(());
        }
        wait
    }

    /// Stores a transition, all of it at once.
    async fn commit(
        &self,
        transition: &Transition,
        next: super::Next,
        kept: &Kept<DeploymentRecord>,
        units: &[KeptUnit],
    ) -> Result<(), Error> {
        let key = &kept.record.deployment.key;
        let name = records::deployment(key);
        let mut change = Transaction::new()
            .check(name.clone(), Check::Version(kept.version))
            .fenced(&self.ownership);
        for (unit, record) in &next.units {
            let unit_name = records::unit(&unit.0, &unit.1);
            let known = units.iter().find(|(key, _)| key == unit);
            let check = known.map_or(Check::Absent, |(_, kept)| Check::Version(kept.version));
            change = change.check(unit_name.clone(), check).put(unit_name, records::write(record)?);
        }
        match &next.record {
            Some(record) => {
                change = change.put(name, records::write(record)?);
                let revision = records::revision(key, &record.revision);
                if let Some(entry) = self.store.get(&revision).await? {
                    let before: Revision = records::read(&revision, &entry.value)?;
                    let after = Revision { outcome: next.outcome, ..before };
                    change = change
                        .check(revision.clone(), Check::Version(entry.version))
                        .put(revision, records::write(&after)?);
                }
            }
            None => {
                change = change.delete(name);
                let history = self.store.list(&records::revision(key, "")).await?;
                for entry in history.entries {
                    change = change.delete(entry.key);
                }
            }
        }
        match self.store.commit(change).await {
            Ok(revision) => self.book.reach(revision).await,
            // Somebody came before: what is stored now is looked at next.
            Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(Error::Unavailable(format!("{transition:?}: {error}"))),
        }
    }

    /// Tells of a deployment and its units what wasn't told yet.
    fn tell(&self, key: &str, told: &mut Told) {
        let (Some(kept), units) = self.book.whole(key) else { return };
        let status = deployments::status(&kept.record, &units, &self.clusters, &self.troubles);
        let unheard = |unit: &UnitStatus| unit.contact == Contact::Unknown;
        if told.hearing.is_some() && status.units.iter().any(unheard) {
            return;
        }
        for unit in &status.units {
            let now = (unit.condition, unit.current);
            let before = told.units.insert((unit.cluster.clone(), unit.id.clone()), now);
            if before != Some(now) {
                self.events.publish(Event {
                    kind: "unit.condition".to_owned(),
                    subject: unit.id.clone(),
                    condition: word(&unit.condition),
                    message: unit.message.clone(),
                    correlation_id: kept.record.correlation_id.clone(),
                    ..Event::default()
                });
            }
        }
        let now = (status.condition, status.message);
        if told.deployments.get(key) != Some(&now) {
            self.events.publish(Event {
                kind: "deployment.condition".to_owned(),
                subject: key.to_owned(),
                condition: word(&now.0),
                message: now.1.clone(),
                correlation_id: kept.record.correlation_id.clone(),
                ..Event::default()
            });
            told.deployments.insert(key.to_owned(), now);
        }
    }

    /// Tells of units that clusters have and that nobody here knows.
    fn tell_orphans(&self, told: &mut Told) {
        let mut orphans = BTreeSet::new();
        for link in self.clusters.links() {
            let observed = link.observed();
            // What isn't told for sure may have been driven or gone meanwhile.
            if !observed.is_known() {
                let known = told.orphans.iter().filter(|(cluster, _)| cluster == link.name());
                orphans.extend(known.cloned());
                continue;
            }
            for class in observed.classes().filter(|class| !class.deleting) {
                let key = (link.name().to_owned(), class.deployment_id.clone());
                let ours = parse_unit_id(&key.1).is_some_and(|unit| unit.cluster == key.0);
                if ours && self.book.unit(&key).is_none() {
                    orphans.insert(key);
                }
            }
        }
        for (cluster, id) in orphans.difference(&told.orphans) {
            self.events.publish(Event {
                kind: "orphan.found".to_owned(),
                subject: id.clone(),
                message: format!("on {cluster}: adopt it, or delete it"),
                ..Event::default()
            });
        }
        told.orphans = orphans;
    }

    fn tell_clusters(&self, told: &mut Told) {
        for cluster in self.clusters.view(|_| 0) {
            if told.clusters.insert(cluster.name.clone(), cluster.health) != Some(cluster.health) {
                self.events.publish(Event {
                    kind: "cluster.health".to_owned(),
                    subject: cluster.name,
                    condition: word(&cluster.health),
                    message: cluster.message,
                    ..Event::default()
                });
            }
        }
    }
}

/// A word as it is written in documents.
fn word(of: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(of).ok();
    value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
