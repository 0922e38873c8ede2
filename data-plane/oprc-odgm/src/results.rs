//! Results that are kept for idempotency keys: how many bytes they have, and when they are forgotten.

use std::collections::BTreeMap;

use jiff::Timestamp;
use oprc_cp_storage::{MAX_OPERATIONS, Store, Transaction};
use parking_lot::Mutex;

use crate::{
    Error,
    record::{INVOCATIONS, period, period_of_key},
};

/// Results that are kept at once, in bytes. One result may exceed it.
const MAX_BYTES: u64 = 256 << 20;
/// Results that are read at once.
const PAGE: usize = 100;

/// The bytes of all results by the period of their calls.
#[derive(Debug, Default)]
pub(crate) struct Results {
    by_period: Mutex<BTreeMap<i64, u64>>,
}

impl Results {
    pub(crate) async fn read(store: &Store) -> Result<Self, Error> {
        let (results, mut after) = (Self::default(), None::<String>);
        loop {
            let page = store.range(INVOCATIONS, after.as_deref(), PAGE).await?;
            for entry in &page.entries {
                let period = period_of_key(&entry.key).unwrap_or_default();
                results.add(period, entry.key.len() + entry.value.len());
            }
            after = page.entries.last().map(|it| it.key.clone());
            if !page.more {
                return Ok(results);
            }
        }
    }

    pub(crate) fn add(&self, period: i64, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let mut by_period = self.by_period.lock();
        let sum = by_period.entry(period).or_default();
        *sum = sum.saturating_add(bytes);
    }

    /// Fails if no further result can be kept.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let bytes = self.by_period.lock().values().fold(0, |sum: u64, it| sum.saturating_add(*it));
        if bytes >= MAX_BYTES { Err(Error::ResultsFull(bytes)) } else { Ok(()) }
    }

    /// Deletes results that are too old to be repeated.
    pub(crate) async fn forget(&self, store: &Store) -> Result<(), Error> {
        let oldest = period(Timestamp::now().as_millisecond()) - 1;
        loop {
            let page = store.range(INVOCATIONS, None, MAX_OPERATIONS).await?;
            let keys = page.entries.into_iter().map(|it| it.key);
            let old: Vec<_> = keys.take_while(|key| period_of_key(key) < Some(oldest)).collect();
            if old.is_empty() {
                break;
            }
            store.commit(old.into_iter().fold(Transaction::new(), Transaction::delete)).await?;
        }
        self.by_period.lock().retain(|period, _| *period >= oldest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::invocation_key;

    #[tokio::test]
    async fn results_are_bounded_until_they_are_forgotten() {
        let store = Store::memory();
        let present = period(Timestamp::now().as_millisecond());
        let value = vec![0; 1000];
        for (number, age) in [0, 1, 2, 500].into_iter().enumerate() {
            for part in 0..150 {
                let key = invocation_key(present - age, "o/Counter/a", &format!("{number}-{part}"));
                store.commit(Transaction::new().put(key, value.clone())).await.unwrap();
            }
        }
        let results = Results::read(&store).await.unwrap();
        results.check().unwrap();
        results.add(present - 2, 256 << 20);
        assert!(matches!(results.check(), Err(Error::ResultsFull(bytes)) if bytes > MAX_BYTES));
        results.forget(&store).await.unwrap();
        results.check().unwrap();
        assert_eq!(store.list(INVOCATIONS).await.unwrap().entries.len(), 300);
        results.add(present, 256 << 20);
        assert!(results.check().is_err());
    }
}
