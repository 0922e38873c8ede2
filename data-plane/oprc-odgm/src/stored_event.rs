//! An event of the store, and its progress.

use oprc_cp_storage::{Check, Revision, Transaction};

use crate::{
    Error,
    record::{EventRecord, encode},
};

#[derive(Clone, Debug)]
pub(crate) struct StoredEvent {
    pub(crate) key: String,
    pub(crate) version: Revision,
    pub(crate) record: EventRecord,
}

impl StoredEvent {
    /// The next trigger.
    pub(crate) fn trigger(&self) -> Option<&str> {
        self.record.triggers.first().map(String::as_str)
    }

    /// Identifies the call of its next trigger, in each attempt.
    pub(crate) fn id(&self) -> String {
        format!("{}-{}-{}", self.key, self.record.at, self.record.triggers.len())
    }

    /// Adds that the next trigger was called. After the last one, the event is deleted. Fails if the event
    /// has changed. The event isn't parked, because parked ones aren't delivered.
    pub(crate) fn advanced(&self, transaction: Transaction) -> Result<Transaction, Error> {
        let transaction = transaction.check(&self.key, Check::Version(self.version));
        let triggers: Vec<_> = self.record.triggers.iter().skip(1).cloned().collect();
        if triggers.is_empty() {
            return Ok(transaction.delete(&self.key));
        }
        let record = EventRecord { triggers, ..self.record.clone() };
        Ok(transaction.put(&self.key, encode(&record)?))
    }
}
