//! Makes the calls that the units of one cluster need: several at once, one at a time per unit.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use oprc_cp_storage::Transaction;
use oprc_grpc::unit::to_wire;
use oprc_unit::UnitSpec;
use tokio::sync::watch;

use super::Dispatcher;
use crate::{
    crm_client::CrmClient,
    error::Error,
    rollout::{CallOutcome, RecordUpdate, Step, UnitKey, UnitRecord, next_step, record_update},
    state::{Versioned, replace, schema::unit_key},
};

const MAX_CONCURRENT_CALLS: usize = 16;
/// Interval of evaluation if nothing happens.
const IDLE: Duration = Duration::from_hours(1);

struct DueCall {
    key: UnitKey,
    stored: Versioned<UnitRecord>,
    step: Step,
    /// The spec to deploy; none where the unit is deleted.
    spec: Option<UnitSpec>,
}

impl Dispatcher {
    pub(super) async fn drive_cluster(
        &self,
        client: &Arc<CrmClient>,
        mut released: watch::Receiver<()>,
    ) {
        let (mut stored, mut observed) = (self.cache.changes(), client.changes());
        let mut calls = FuturesUnordered::new();
        let mut in_flight = BTreeSet::new();
        loop {
            stored.borrow_and_update();
            observed.borrow_and_update();
            released.borrow_and_update();
            let (due, next) = self.due_calls(client, &in_flight);
            for call in due.into_iter().take(MAX_CONCURRENT_CALLS.saturating_sub(in_flight.len())) {
                in_flight.insert(call.key.clone());
                calls.push(self.call(client, call));
            }
            let wait = next.map_or(IDLE, |at| at.saturating_duration_since(Instant::now()));
            tokio::select! {
                Some(key) = calls.next(), if !in_flight.is_empty() => {
                    in_flight.remove(&key);
                }
                Ok(()) = stored.changed() => {}
                Ok(()) = observed.changed() => {}
                Ok(()) = released.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// The calls to make now, and when the next one is due.
    fn due_calls(
        &self,
        client: &CrmClient,
        in_flight: &BTreeSet<UnitKey>,
    ) -> (Vec<DueCall>, Option<Instant>) {
        let (now, classes) = (Instant::now(), client.class_cache());
        let mut deployments = BTreeMap::new();
        let (mut due, mut next) = (Vec::new(), None::<Instant>);
        for (key, stored) in self.cache.units_on(client.name()) {
            if in_flight.contains(&key) {
                continue;
            }
            let record = &stored.record;
            let step = next_step(record, &classes.observe(&key.1, record.object_namespace()));
            if step == Step::Wait {
                continue;
            }
            let (deployment, evaluation) =
                deployments.entry(record.deployment.clone()).or_insert_with_key(|deployment| {
                    let (stored, units) = self.cache.deployment_with_units(deployment);
                    let evaluation = stored.as_ref().map(|it| self.evaluate(&it.record, &units));
                    (stored, evaluation.unwrap_or_default())
                });
            if evaluation.holds(step) {
                continue;
            }
            let planned =
                deployment.as_ref().and_then(|it| it.record.planned_unit(&key, &record.revision));
            // The deployment has changed since its unit was read: the change causes another evaluation.
            if step == Step::Deploy && planned.is_none() {
                continue;
            }
            match self.call_backoff.next_call(&key, record) {
                Some(at) if at > now => next = Some(next.map_or(at, |first| first.min(at))),
                _ => {
                    let spec = planned.map(|unit| unit.spec.clone());
                    due.push(DueCall { key, stored, step, spec });
                }
            }
        }
        (due, next)
    }

    async fn call(&self, client: &CrmClient, call: DueCall) -> UnitKey {
        let DueCall { key, stored, step, spec } = call;
        let record = stored.record.as_ref();
        let outcome = match (step, &spec) {
            // A process that was suspended past its lease must not undo what its successor did.
            _ if !self.lease.is_held() => {
                CallOutcome::Failed("this process no longer owns the store".to_owned())
            }
            (Step::Deploy, Some(spec)) => match to_wire(spec) {
                Some(spec) => client.deploy(&key.1, record, spec).await,
                None => CallOutcome::Rejected("the unit has no form on the wire".to_owned()),
            },
            _ => client.delete(&key.1, record).await,
        };
        self.call_backoff.record(Instant::now(), key.clone(), record, step, &outcome);
        let (cluster, id, correlation_id) = (&key.0, &key.1, &record.correlation_id);
        match &outcome {
            CallOutcome::Rejected(error) | CallOutcome::Failed(error) => {
                tracing::warn!(cluster, id, correlation_id, ?step, error, "call failed, retrying");
            }
            outcome => tracing::debug!(cluster, id, correlation_id, ?step, ?outcome, "call done"),
        }
        if let Err(error) = self.store_outcome(&key, &stored, &outcome).await {
            tracing::warn!(cluster, id, correlation_id, %error, "cannot store the outcome of a call");
        }
        key
    }

    /// Stores the outcome of a call unless the unit's record has changed meanwhile.
    async fn store_outcome(
        &self,
        key: &UnitKey,
        stored: &Versioned<UnitRecord>,
        outcome: &CallOutcome,
    ) -> Result<(), Error> {
        let after = match record_update(&stored.record, outcome) {
            RecordUpdate::Unchanged => return Ok(()),
            RecordUpdate::Replaced(record) => Some(record),
            RecordUpdate::Deleted => {
                if let Some(until) = self.call_backoff.in_doubt_until(key, Instant::now()) {
                    self.call_backoff.postpone(key, until);
                    return Ok(());
                }
                None
            }
        };
        let change = Transaction::new().fenced(&self.lease);
        let change = replace(change, unit_key(key), Some(stored), after.as_deref())?;
        if self.cache.commit(change).await? && after.is_none() {
            self.call_backoff.remove(key);
        }
        Ok(())
    }
}
