//! Calls one cluster for all units that aren't as they should be: several at once, each unit one at
//! a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use oprc_cp_storage::{Check, Error as StoreError, Transaction};
use oprc_grpc::deployment::unit::ClassSpec;
use tokio::sync::watch;

use super::{
    Dispatcher, outlook,
    unit::{self, Outcome, Step},
};
use crate::{
    clusters::Link,
    deployments::{Kept, UnitKey},
    records::{self, UnitRecord},
    stamp,
};

/// How many calls are under way at once.
const CALLS: usize = 16;
/// When to look again if nothing happens.
const IDLE: Duration = Duration::from_hours(1);

struct Due {
    key: UnitKey,
    kept: Kept<UnitRecord>,
    step: Step,
}

impl Dispatcher {
    pub(super) async fn drive(&self, link: &Arc<Link>, mut woken: watch::Receiver<()>) {
        let (mut stored, mut told) = (self.book.changes(), link.changes());
        let mut calls = FuturesUnordered::new();
        let mut under_way = BTreeSet::new();
        loop {
            stored.borrow_and_update();
            told.borrow_and_update();
            woken.borrow_and_update();
            let (due, again) = self.due(link, &under_way);
            for due in due.into_iter().take(CALLS.saturating_sub(under_way.len())) {
                under_way.insert(due.key.clone());
                calls.push(self.call(link, due));
            }
            let wait = again.map_or(IDLE, |at| at.saturating_duration_since(Instant::now()));
            tokio::select! {
                Some(key) = calls.next(), if !under_way.is_empty() => {
                    under_way.remove(&key);
                }
                Ok(()) = stored.changed() => {}
                Ok(()) = told.changed() => {}
                Ok(()) = woken.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// The units to call for, and when the next one may be.
    fn due(&self, link: &Link, under_way: &BTreeSet<UnitKey>) -> (Vec<Due>, Option<Instant>) {
        let now = Instant::now();
        let mut holds: BTreeMap<String, (bool, bool)> = BTreeMap::new();
        let (mut due, mut again) = (Vec::new(), None::<Instant>);
        for (key, kept) in self.book.units_on(link.name()) {
            if under_way.contains(&key) {
                continue;
            }
            let seen = link.observed().seen(&key.1, kept.record.place());
            let step = unit::step(&kept.record, &seen);
            if step == Step::Rest {
                continue;
            }
            let of = &kept.record.deployment;
            let (deploys, deletes) = *holds.entry(of.clone()).or_insert_with(|| self.holds(of));
            if (step == Step::Deploy && deploys) || (step == Step::Delete && deletes) {
                continue;
            }
            match self.troubles.not_before(&key, &kept.record) {
                Some(at) if at > now => again = Some(again.map_or(at, |before| before.min(at))),
                _ => due.push(Due { key, kept, step }),
            }
        }
        (due, again)
    }

    fn holds(&self, deployment: &str) -> (bool, bool) {
        let (record, units) = self.book.whole(deployment);
        let Some(record) = record else { return (false, false) };
        let outlook = outlook(&record.record, &self.views(&units), stamp::now(), self.limits);
        (outlook.hold_deploys, outlook.hold_deletes)
    }

    async fn call(&self, link: &Link, due: Due) -> UnitKey {
        let Due { key, kept, step } = due;
        let record = kept.record.as_ref();
        let outcome = match (step, &record.spec) {
            // Whoever was held up past its lease may be about to do what another has undone.
            _ if !self.ownership.is_held() => {
                Outcome::Failed("this process drives the store no longer".to_owned())
            }
            (Step::Deploy, Some(spec)) => match serde_json::from_value::<ClassSpec>(spec.clone()) {
                Ok(spec) => {
                    link.deploy(&key.1, &record.namespace, spec, &record.correlation_id).await
                }
                Err(error) => Outcome::Refused(format!("the plan can't be read: {error}")),
            },
            _ => link.delete(&key.1, &record.namespace, &record.correlation_id).await,
        };
        self.troubles.note(key.clone(), record, step, &outcome);
        let (cluster, id, correlation_id) = (&key.0, &key.1, &record.correlation_id);
        match &outcome {
            Outcome::Refused(why) | Outcome::Failed(why) => {
                tracing::warn!(cluster, id, correlation_id, ?step, why, "not done");
            }
            outcome => tracing::debug!(cluster, id, correlation_id, ?step, ?outcome, "done"),
        }
        self.keep(&key, &kept, &outcome).await;
        key
    }

    /// Stores what came of a call, unless what is wanted has changed meanwhile.
    async fn keep(&self, key: &UnitKey, kept: &Kept<UnitRecord>, outcome: &Outcome) {
        let name = records::unit(&key.0, &key.1);
        let transaction = Transaction::new()
            .check(name.clone(), Check::Version(kept.version))
            .fenced(&self.ownership);
        let transaction = match unit::after(&kept.record, outcome) {
            unit::Kept::Same => return,
            unit::Kept::Changed(record) => match records::write(record.as_ref()) {
                Ok(value) => transaction.put(name, value),
                Err(error) => {
                    tracing::error!(name, %error, "can't be stored");
                    return;
                }
            },
            unit::Kept::Dropped => {
                if let Some(until) = self.troubles.unsure_until(key, Instant::now()) {
                    self.troubles.later(key, until);
                    return;
                }
                transaction.delete(name)
            }
        };
        match self.store.commit(transaction).await {
            Ok(revision) => {
                // What isn't seen in time is only called for once more.
                let _ = self.book.reach(revision).await;
                if matches!(outcome, Outcome::Gone) {
                    self.troubles.forget(key);
                }
            }
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => tracing::warn!(cluster = key.0, id = key.1, %error, "not stored"),
        }
    }
}
