//! Changes of objects, with their events, as transactions.

use oprc_cp_storage::{Change, Check, Error as StoreError, Revision, Transaction};

use super::{Grid, MAX_ATTEMPTS, now};
use crate::{
    Error,
    class::Class,
    equality::same,
    event_waiters::EventWaiter,
    object_change::{Found, ObjectChange},
    record::{
        ObjectRecord, decode, encode, event_key, events_prefix, objects_prefix, parse_event_key,
        period_of_key,
    },
    replica::lost_partition,
};

/// Events of an object that wait for their triggers. More refuse changes, except those of its triggers,
/// without which there would be no end.
pub(super) const MAX_PENDING_EVENTS: u64 = 1000;
/// The bound is checked once per this many events, because it takes a read.
pub(super) const PENDING_EVENTS_STEP: u64 = 16;

/// The result of a commit.
pub(crate) enum Committed {
    At(Revision),
    /// The object changed meanwhile.
    Conflict,
}

/// The ownership that a call began with; none if the node is the only one. A commit fails if the object had
/// another owner since then, even if this node is the owner again: the other may have answered the same
/// call.
pub(crate) struct Fence(pub(super) Option<(String, Check)>);

impl Fence {
    pub(crate) fn apply(self, transaction: Transaction) -> Transaction {
        match self.0 {
            Some((partition, check)) => transaction.check(partition, check),
            None => transaction,
        }
    }
}

/// A change that is ready to be stored, with its event.
pub(crate) struct PreparedChange {
    pub(crate) transaction: Transaction,
    /// Waits for the triggers of the event.
    pub(crate) waiter: Option<EventWaiter>,
}

/// Whether a change is refused if too many events of the object wait for their triggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventBound {
    Checked,
    Exempt,
}

impl Grid {
    /// The transaction of a change, with its event.
    pub(crate) async fn prepare(
        &self,
        class: &Class,
        change: &ObjectChange<'_>,
        bound: EventBound,
    ) -> Result<PreparedChange, Error> {
        let ObjectChange { found, state, invocation, .. } = change;
        let key = &found.key;
        let event = change.event(class);
        let number = match &found.record {
            Some(record) => record.next_event,
            // Events of a deleted object with the same id may be left.
            None => self.next_event(key).await?,
        };
        let is_checked = bound == EventBound::Checked && number.is_multiple_of(PENDING_EVENTS_STEP);
        if event.is_some() && is_checked {
            self.check_pending(key, number).await?;
        }
        let mut transaction = Transaction::new().check(key, found.check());
        transaction = match state {
            None => transaction.delete(key),
            Some(state) => {
                class.check(state)?;
                if let Some(former) = &found.record {
                    class.check_change(&former.state, state, same)?;
                }
                let changed = now();
                let record = ObjectRecord {
                    state: state.clone(),
                    created: found.record.as_ref().map_or(changed, |it| it.created),
                    changed,
                    last: (*invocation).to_owned(),
                    next_event: number + u64::from(event.is_some()),
                    changes: found.record.as_ref().map_or(0, |it| it.changes + 1),
                };
                transaction.put(key, encode(&record)?)
            }
        };
        let mut waiter = None;
        if let Some(event) = event {
            let event_key = event_key(key, number);
            waiter = event
                .waited
                .map(|(ignored, limit)| self.waiters.register(&event_key, ignored, limit));
            transaction = transaction.check(&event_key, Check::Absent);
            transaction = transaction.put(event_key, encode(&event.record)?);
        }
        Ok(PreparedChange { transaction, waiter })
    }

    /// Events of an object have consecutive numbers, and the oldest is the first that is removed.
    async fn check_pending(&self, object_key: &str, next: u64) -> Result<(), Error> {
        let oldest = self.store.range(&events_prefix(object_key), None, 1).await?;
        let oldest = oldest.entries.first().and_then(|it| parse_event_key(&it.key));
        let pending = oldest.map_or(0, |(_, number)| next.saturating_sub(number));
        if pending >= MAX_PENDING_EVENTS { Err(Error::EventsPending(pending)) } else { Ok(()) }
    }

    async fn next_event(&self, object_key: &str) -> Result<u64, Error> {
        let pending = self.store.list(&events_prefix(object_key)).await?;
        let last = pending.entries.last().and_then(|it| parse_event_key(&it.key));
        Ok(last.map_or(0, |(_, number)| number + 1))
    }

    /// Commits a change of an object. If the outcome is unknown, reads it from the object.
    pub(crate) async fn commit(
        &self,
        transaction: Transaction,
        fence: Fence,
        found: &Found,
        invocation: &str,
    ) -> Result<Committed, Error> {
        let is_own = |it: &&Change| it.key() == found.key;
        let change = transaction.changes.iter().find(is_own).map(|it| it.value().is_some());
        let committed = self.committed(fence.apply(transaction), found, invocation).await;
        if let Ok(Committed::At(_)) = committed {
            self.count_change(found, change);
        }
        committed
    }

    /// `change` is whether the object was put or deleted.
    pub(crate) fn count_change(&self, found: &Found, change: Option<bool>) {
        match (&found.record, change) {
            (None, Some(true)) => self.counts.created(&found.collection),
            (Some(_), Some(false)) => self.counts.deleted(&found.collection),
            _ => {}
        }
    }

    async fn committed(
        &self,
        transaction: Transaction,
        found: &Found,
        invocation: &str,
    ) -> Result<Committed, Error> {
        // Why an attempt may have been committed. From then on, no error shows that nothing was changed.
        let mut unknown = None::<String>;
        for _ in 0..MAX_ATTEMPTS {
            let error = match self.store.commit(transaction.clone()).await {
                Ok(revision) => return Ok(Committed::At(revision)),
                Err(error) => error,
            };
            let reason = match (&error, unknown.take()) {
                (StoreError::UnknownOutcome { reason }, _) => reason.clone(),
                (StoreError::Conflict { .. }, None) => return self.conflict(&error),
                (_, None) => return Err(error.into()),
                (StoreError::Conflict { .. }, Some(reason)) => reason,
                (_, Some(reason)) => return Err(Error::UnknownOutcome(reason)),
            };
            match self.last_change(found).await {
                Ok(Some((last, version))) if last == invocation => {
                    return Ok(Committed::At(version));
                }
                // The same transaction can succeed only once, because it checks the version.
                Ok(present) if present.as_ref().map(|it| it.1) == found.version => {
                    if matches!(error, StoreError::Conflict { .. }) {
                        return self.conflict(&error);
                    }
                }
                _ => return Err(Error::UnknownOutcome(reason)),
            }
            unknown = Some(reason);
        }
        Err(Error::UnknownOutcome("the store did not respond in time".to_owned()))
    }

    /// The result of a commit that stored nothing.
    fn conflict(&self, error: &StoreError) -> Result<Committed, Error> {
        self.metrics.conflicts.inc();
        lost_partition(error).map_or(Ok(Committed::Conflict), Err)
    }

    /// The invocation that changed an object last, and the version.
    async fn last_change(&self, found: &Found) -> Result<Option<(String, Revision)>, Error> {
        let Some(entry) = self.store.get(&found.key).await? else { return Ok(None) };
        let record: ObjectRecord = decode(&found.key, &entry.value)?;
        Ok(Some((record.last, entry.version)))
    }

    /// Counts an object or a result that was restored from a backup.
    pub(crate) fn count_restored(&self, key: &str, bytes: usize) {
        if let Some(period) = period_of_key(key) {
            self.results.add(period, key.len() + bytes);
        }
        let class = self.class();
        let of = |it: &&String| key.starts_with(&objects_prefix(it));
        if let Some(collection) = class.collections.iter().find(of) {
            self.counts.created(collection);
        }
    }
}

#[cfg(test)]
mod tests;
