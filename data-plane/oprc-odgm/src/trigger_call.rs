//! Calls of triggers.

use oprc_cp_storage::{Error as StoreError, Transaction};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{
    Error, Grid, ObjectId,
    class::{Access, Batch, Cause, Class, Method, State, Trigger},
    grid::{EventBound, PreparedChange, new_id},
    invocation::Invocation,
    method_call::{MethodCall, deadline},
    object_change::ObjectChange,
    record::parse_event_key,
    stored_event::StoredEvent,
};

/// How many events the next trigger of an event gets in one call; none if it gets single ones. Runs of
/// macros are identified by their events, which must not change between attempts.
pub(crate) fn batch_of(class: &Class, event: &StoredEvent) -> Option<Batch> {
    let name = event.trigger().filter(|it| !class.macros.contains_key(*it))?;
    let record = &event.record;
    class.trigger(name, &record.collection, record.kind).filter(|it| it.is_async)?;
    class.batch
}

impl Grid {
    /// Calls the next trigger of events of one object, which is the same for all. Its change and the
    /// progress of the events are one transaction, so that the change is stored once. The object may have
    /// changed or been deleted since the events.
    pub(crate) async fn trigger(&self, events: &[StoredEvent]) -> Result<(), Error> {
        let class = self.class();
        let Some(first) = events.first() else { return Ok(()) };
        let Some(name) = first.trigger() else { return self.advance(events, None).await.map(drop) };
        let depth = events.iter().map(|it| it.record.cause.depth).max().unwrap_or_default();
        let mut call = Invocation::new(
            ObjectId::parse(&first.record.id)?,
            name,
            arguments(&class, events),
            Access::Private,
        );
        call.collection = Some(first.record.collection.clone());
        call.origin.depth = depth + 1;
        if class.macros.contains_key(name) {
            return self.trigger_macro(events, call).await;
        }
        // The trigger may have been removed.
        match class.methods.get(name) {
            Some(method) => self.trigger_method(&class, method, events, &call).await,
            None => self.advance(events, None).await.map(drop),
        }
    }

    async fn trigger_method(
        &self,
        class: &Class,
        method: &Method,
        events: &[StoredEvent],
        call: &Invocation,
    ) -> Result<(), Error> {
        let collection = call.collection.as_deref();
        let key = Self::key(class, collection, &call.id)?;
        let trigger = events.first().map(|it| &it.record);
        let trigger = trigger.and_then(|it| class.trigger(&call.method, &it.collection, it.kind));
        let limit = trigger.and_then(Trigger::timeout).unwrap_or_else(|| method.timeout());
        let _turn = self.turns.take_always(&key).await?;
        let found = self.read(class, collection, &call.id).await?;
        let id = events.first().map(StoredEvent::id).unwrap_or_default();
        let begun = MethodCall { class, method, call, id, deadline: deadline(call, limit) };
        let state = match found.state(class) {
            Ok(state) => self.call_function(&begun, &found, &state).await?.1,
            // It has no state that could change.
            Err(_) => {
                self.call_function(&begun, &found, &State::new()).await?;
                None
            }
        };
        let Some(state) = state.filter(|it| found.is_other(it)) else {
            return self.advance(events, None).await.map(drop);
        };
        if method.immutable {
            return Err(Error::Immutable(call.method.clone()));
        }
        let is_created = found.record.is_none();
        let cause = Cause { method: Some(call.method.clone()), depth: call.origin.depth };
        let (state, invocation) = (Some(state), new_id());
        let change = ObjectChange { found: &found, state, invocation: &invocation, cause };
        let prepared = self.prepare(class, &change, EventBound::Exempt).await?;
        // No caller waits for the triggers of a trigger's change.
        let PreparedChange { transaction, .. } = prepared;
        if self.advance(events, Some(transaction)).await? {
            self.count_change(&found, is_created.then_some(true));
        }
        Ok(())
    }

    /// The steps of a macro are transactions of their own. An event that is delivered again continues
    /// its run.
    async fn trigger_macro(
        &self,
        events: &[StoredEvent],
        mut call: Invocation,
    ) -> Result<(), Error> {
        let ids: Vec<_> = events.iter().map(StoredEvent::id).collect();
        call.idempotency_key = Some(hex::encode(Sha256::digest(ids.join(","))));
        match self.invoke(&call).await {
            // There is nothing to run it on.
            Ok(_) | Err(Error::NotFound(_)) => self.advance(events, None).await.map(drop),
            Err(error) => Err(error),
        }
    }

    /// Adds that the next trigger of events was called to a transaction, and commits it. False if they
    /// have changed meanwhile; then they are read again.
    async fn advance(
        &self,
        events: &[StoredEvent],
        transaction: Option<Transaction>,
    ) -> Result<bool, Error> {
        let transaction = transaction.unwrap_or_default();
        let transaction = events.iter().try_fold(transaction, |all, it| it.advanced(all))?;
        let object = events.first().and_then(|it| parse_event_key(&it.key));
        let transaction = match object {
            Some((object_key, _)) => self.fence(object_key)?.apply(transaction),
            None => transaction,
        };
        match self.store().commit(transaction).await {
            Ok(_) => {
                for event in events {
                    self.waiters
                        .advanced(&event.key, event.record.triggers.len().saturating_sub(1));
                }
                Ok(true)
            }
            Err(StoreError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// What a trigger gets.
fn arguments(class: &Class, events: &[StoredEvent]) -> Value {
    let one = |event: &StoredEvent| {
        let record = &event.record;
        json!({"event": record.kind, "at": record.at, "cause": record.cause})
    };
    match events {
        [only] if batch_of(class, only).is_none() => one(only),
        all => json!({"events": all.iter().map(one).collect::<Vec<_>>()}),
    }
}
