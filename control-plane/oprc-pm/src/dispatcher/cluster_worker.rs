//! Makes the calls that the units of one cluster need: several at once, one at a time per unit.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use oprc_cp_storage::Transaction;
use oprc_grpc::unit::to_wire;
use tokio::sync::watch;

use super::Dispatcher;
use crate::{
    crm_client::CrmClient,
    error::Error,
    rollout::{
        CallOutcome, DeploymentRecord, RecordUpdate, Step, UnitKey, UnitRecord, next_step,
        record_update,
    },
    state::{Versioned, replace, schema::unit_key},
};

const MAX_CONCURRENT_CALLS: usize = 16;
/// Interval of evaluation if nothing happens.
const IDLE: Duration = Duration::from_hours(1);

struct DueCall {
    key: UnitKey,
    stored: Versioned<UnitRecord>,
    call: Call,
}

enum Call {
    /// With the deployment whose plan contains the spec.
    Deploy(Arc<DeploymentRecord>),
    Delete,
}

impl Call {
    fn step(&self) -> Step {
        match self {
            Self::Deploy(_) => Step::Deploy,
            Self::Delete => Step::Delete,
        }
    }
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
        let mut reported = BTreeSet::new();
        loop {
            stored.borrow_and_update();
            observed.borrow_and_update();
            released.borrow_and_update();
            let (due, next) = self.due_calls(client, &in_flight, &mut reported);
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

    /// The calls to make now, and when the next one is due. `reported` are deployments whose missing
    /// record was logged.
    fn due_calls(
        &self,
        client: &CrmClient,
        in_flight: &BTreeSet<UnitKey>,
        reported: &mut BTreeSet<String>,
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
            let call = match (step, deployment) {
                (Step::Wait, _) => continue,
                (Step::Delete, _) => Call::Delete,
                (Step::Deploy, Some(deployment)) => {
                    // Otherwise it has changed since its unit was read, and is evaluated again.
                    if deployment.record.planned_unit(&key, &record.revision).is_none() {
                        continue;
                    }
                    Call::Deploy(Arc::clone(&deployment.record))
                }
                (Step::Deploy, None) => {
                    if reported.insert(record.deployment.clone()) {
                        let (cluster, id) = &key;
                        let deployment = &record.deployment;
                        tracing::warn!(
                            cluster,
                            id,
                            deployment,
                            "cannot deploy a unit: its deployment has no valid record"
                        );
                    }
                    continue;
                }
            };
            match self.call_backoff.next_call(&key, record) {
                Some(at) if at > now => next = Some(next.map_or(at, |first| first.min(at))),
                _ => due.push(DueCall { key, stored, call }),
            }
        }
        (due, next)
    }

    async fn call(&self, client: &CrmClient, call: DueCall) -> UnitKey {
        let DueCall { key, stored, call } = call;
        let (record, step) = (stored.record.as_ref(), call.step());
        let outcome = match call {
            // A process that was suspended past its lease must not undo what its successor did.
            _ if !self.lease.is_held() => {
                CallOutcome::Failed("this process no longer owns the store".to_owned())
            }
            Call::Deploy(deployment) => {
                let planned = deployment.planned_unit(&key, &record.revision);
                match planned.and_then(|unit| to_wire(&unit.spec)) {
                    Some(spec) => client.deploy(&key.1, record, spec).await,
                    None => CallOutcome::Rejected("the unit has no form on the wire".to_owned()),
                }
            }
            Call::Delete => client.delete(&key.1, record).await,
        };
        self.call_backoff.record(Instant::now(), key.clone(), record, step, &outcome);
        let (cluster, id, correlation_id) = (&key.0, &key.1, &record.correlation_id);
        match &outcome {
            CallOutcome::Rejected(error) | CallOutcome::Failed(error) => {
                tracing::warn!(cluster, id, correlation_id, ?step, error, "call failed, retrying");
            }
            CallOutcome::Accepted(it) => {
                let generation = it.generation;
                tracing::debug!(cluster, id, correlation_id, generation, "unit accepted by CRM");
            }
            outcome => {
                tracing::debug!(cluster, id, correlation_id, ?step, ?outcome, "call completed");
            }
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
