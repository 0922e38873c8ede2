//! Makes the calls that the units of one cluster need: several at once, one at a time per unit.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use oprc_cp_storage::{Check, Transaction};
use oprc_grpc::unit::to_wire;
use tokio::sync::watch;

use super::Dispatcher;
use crate::{
    clock,
    crm_client::CrmClient,
    error::Error,
    rollout::{
        CallOutcome, RecordUpdate, Step, UnitKey, UnitRecord, evaluate, next_step, record_update,
    },
    state::{
        Versioned,
        schema::{encode, unit_key},
    },
};

const MAX_CONCURRENT_CALLS: usize = 16;
/// Interval of evaluation if nothing happens.
const IDLE: Duration = Duration::from_hours(1);

struct DueCall {
    key: UnitKey,
    stored: Versioned<UnitRecord>,
    step: Step,
}

#[derive(Clone, Copy)]
struct Holds {
    deploys: bool,
    deletes: bool,
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
        let mut holds: BTreeMap<String, Holds> = BTreeMap::new();
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
            let of = &record.deployment;
            let holds = holds.entry(of.clone()).or_insert_with(|| self.holds(of));
            let held = if step == Step::Deploy { holds.deploys } else { holds.deletes };
            if held {
                continue;
            }
            match self.call_backoff.next_call(&key, record) {
                Some(at) if at > now => next = Some(next.map_or(at, |first| first.min(at))),
                _ => due.push(DueCall { key, stored, step }),
            }
        }
        (due, next)
    }

    fn holds(&self, deployment: &str) -> Holds {
        let (stored, units) = self.cache.deployment_with_units(deployment);
        let evaluation = stored.map(|stored| {
            evaluate(&stored.record, &self.views(&units), clock::now(), self.deadlines)
        });
        let evaluation = evaluation.unwrap_or_default();
        Holds { deploys: evaluation.hold_deploys, deletes: evaluation.hold_deletes }
    }

    async fn call(&self, client: &CrmClient, call: DueCall) -> UnitKey {
        let DueCall { key, stored, step } = call;
        let record = stored.record.as_ref();
        let outcome = match (step, &record.spec) {
            // A process that was suspended past its lease must not undo what its successor did.
            _ if !self.lease.is_held() => {
                CallOutcome::Failed("this process no longer owns the store".to_owned())
            }
            (Step::Deploy, Some(spec)) => match to_wire(spec) {
                Some(spec) => {
                    client.deploy(&key.1, &record.namespace, spec, &record.correlation_id).await
                }
                None => CallOutcome::Rejected("the unit has no form on the wire".to_owned()),
            },
            _ => client.delete(&key.1, &record.namespace, &record.correlation_id).await,
        };
        self.call_backoff.record(key.clone(), record, step, &outcome);
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
        let name = unit_key(key);
        let transaction = Transaction::new()
            .check(name.clone(), Check::Version(stored.version))
            .fenced(&self.lease);
        match record_update(&stored.record, outcome) {
            RecordUpdate::Unchanged => {}
            RecordUpdate::Replaced(record) => {
                self.cache.commit(transaction.put(name, encode(record.as_ref())?)).await?;
            }
            RecordUpdate::Deleted => {
                if let Some(until) = self.call_backoff.in_doubt_until(key, Instant::now()) {
                    self.call_backoff.postpone(key, until);
                } else if self.cache.commit(transaction.delete(name)).await? {
                    self.call_backoff.remove(key);
                }
            }
        }
        Ok(())
    }
}
