//! Evaluates all deployments whenever something changes, and stores their transitions.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use jiff::Timestamp;
use oprc_cp_storage::Check;
use oprc_rest::Revision;
use tokio::sync::watch;

use super::{Dispatcher, event_publisher::Published};
use crate::{
    clock,
    error::Error,
    rollout::{DeploymentRecord, TransitionResult, apply_transition},
    state::{
        Versioned, VersionedUnit, records_of, replace_deployment,
        schema::{decode, encode, revision_key},
    },
};

/// Interval of evaluation if nothing happens.
const IDLE: Duration = Duration::from_hours(1);
/// Delay after a transition that could not be stored.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Changes come in bursts: one evaluation for all of them.
const DEBOUNCE: Duration = Duration::from_millis(20);
/// Clusters may take this long to connect after the start before they are reported as unreachable.
const CONNECT_GRACE: Duration = Duration::from_secs(5);

/// Whether Deploy and Delete calls are held, by deployment.
type Holds = BTreeMap<String, (bool, bool)>;

impl Dispatcher {
    pub(super) async fn run_rollouts(&self, released: &watch::Sender<()>) {
        let (mut stored, mut errors) = (self.cache.changes(), self.call_backoff.changes());
        let mut clusters: Vec<_> = self.clusters.clients().map(|it| it.changes()).collect();
        let mut published = Published::default();
        let mut holds = Holds::new();
        let grace_until = Instant::now() + CONNECT_GRACE;
        loop {
            stored.borrow_and_update();
            errors.borrow_and_update();
            for cluster in &mut clusters {
                cluster.borrow_and_update();
            }
            let (new_holds, mut wait) = self.evaluate_all().await;
            if new_holds != holds {
                holds = new_holds;
                released.send_replace(());
            }
            let grace = grace_until.saturating_duration_since(Instant::now());
            self.publish_changes(&mut published, !grace.is_zero());
            if !grace.is_zero() {
                wait = wait.min(grace);
            }
            let mut observed: FuturesUnordered<_> =
                clusters.iter_mut().map(watch::Receiver::changed).collect();
            tokio::select! {
                Ok(()) = stored.changed() => {}
                Ok(()) = errors.changed() => {}
                Some(_) = observed.next() => {}
                () = tokio::time::sleep(wait) => {}
            }
            tokio::time::sleep(DEBOUNCE).await;
        }
    }

    /// Evaluates all deployments once; also returns when to do so again.
    async fn evaluate_all(&self) -> (Holds, Duration) {
        let now = clock::now();
        let (mut holds, mut wait) = (Holds::new(), IDLE);
        for listed in self.cache.deployments() {
            let key = &listed.record.deployment.key;
            let (Some(stored), units) = self.cache.deployment_with_units(key) else { continue };
            let evaluation = self.evaluate(&stored.record, &units);
            if let Some(deadline) = evaluation.deadline {
                wait = wait.min(until(deadline, now));
            }
            if evaluation.hold_deploys || evaluation.hold_deletes {
                holds.insert(key.clone(), (evaluation.hold_deploys, evaluation.hold_deletes));
            }
            let Some(transition) = evaluation.transition else { continue };
            let revision = &stored.record.revision;
            let result = apply_transition(&transition, &stored.record, &records_of(&units), now);
            match self.store_transition(result, &stored, &units).await {
                Ok(()) => {
                    tracing::info!(deployment = key, revision, %transition, "rollout transition");
                }
                Err(error) => {
                    tracing::warn!(
                        deployment = key, revision, %transition, %error,
                        "cannot store a rollout transition, retrying"
                    );
                    wait = wait.min(RETRY_DELAY);
                }
            }
        }
        (holds, wait)
    }

    /// Stores a transition in one transaction. One that another writer overtook is dropped: the
    /// new state is evaluated next.
    async fn store_transition(
        &self,
        result: TransitionResult,
        stored: &Versioned<DeploymentRecord>,
        units: &[VersionedUnit],
    ) -> Result<(), Error> {
        let key = &stored.record.deployment.key;
        let record = result.record.as_ref();
        let transaction = replace_deployment(key, Some(stored), record, units, &result.units)?;
        let mut transaction = transaction.fenced(&self.lease);
        let store = self.cache.store();
        match record {
            Some(record) => {
                let revision = revision_key(key, &record.revision);
                if let Some(entry) = store.get(&revision).await? {
                    let before: Revision = decode(&revision, &entry.value)?;
                    let after = Revision { outcome: result.outcome, ..before };
                    transaction = transaction
                        .check(revision.clone(), Check::Version(entry.version))
                        .put(revision, encode(&after)?);
                }
            }
            None => {
                for entry in store.list(&revision_key(key, "")).await?.entries {
                    transaction = transaction.delete(entry.key);
                }
            }
        }
        self.cache.commit(transaction).await.map(drop)
    }
}

fn until(deadline: Timestamp, now: Timestamp) -> Duration {
    // One more millisecond, the precision of times: the deadline has passed then.
    Duration::try_from(deadline.duration_since(now)).unwrap_or_default() + Duration::from_millis(1)
}
