//! Optimistic commits: a transaction is built from the cache, and built again if another writer
//! came first.

use std::time::{Duration, Instant};

use oprc_cp_storage::{Check, Error as StoreError, Transaction};
use serde::Serialize;

use super::{
    Cache, Versioned, VersionedUnit,
    schema::{deployment_key, encode, unit_key},
};
use crate::{
    error::Error,
    rollout::{DeploymentRecord, Units},
};

/// How long a change is retried that others keep overtaking.
const RETRY_FOR: Duration = Duration::from_secs(10);

/// Adds to a transaction that a record is written, or deleted if there is none `after`. The record must
/// be as it was read before, or absent.
pub fn replace<T: Serialize>(
    transaction: Transaction,
    key: String,
    before: Option<&Versioned<T>>,
    after: Option<&T>,
) -> Result<Transaction, Error> {
    let check = before.map_or(Check::Absent, |stored| Check::Version(stored.version));
    let transaction = transaction.check(key.clone(), check);
    Ok(match after {
        Some(record) => transaction.put(key, encode(record)?),
        None => transaction.delete(key),
    })
}

/// The transaction that writes or deletes a deployment and writes those of its units that change.
/// `known` are the units as they were read.
pub fn replace_deployment(
    key: &str,
    before: Option<&Versioned<DeploymentRecord>>,
    after: Option<&DeploymentRecord>,
    known: &[VersionedUnit],
    units: &Units,
) -> Result<Transaction, Error> {
    let mut transaction = replace(Transaction::new(), deployment_key(key), before, after)?;
    for (key, unit) in units {
        let known = known.iter().find(|(known, _)| known == key).map(|(_, stored)| stored);
        if known.is_none_or(|known| *known.record != *unit) {
            transaction = replace(transaction, unit_key(key), known, Some(unit))?;
        }
    }
    Ok(transaction)
}

pub enum Attempt<T> {
    Commit(Transaction, T),
    /// Nothing has to be written.
    Done(T),
}

impl Cache {
    /// Commits a transaction and waits until the cache includes it. False if another writer came
    /// first.
    pub async fn commit(&self, transaction: Transaction) -> Result<bool, Error> {
        match self.store().commit(transaction).await {
            Ok(revision) => self.wait_for(revision).await.map(|()| true),
            Err(StoreError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Builds a transaction from the cache and commits it, again whenever another writer came first.
    pub async fn commit_with_retry<T, F>(&self, mut build: impl FnMut() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<Attempt<T>, Error>>,
    {
        let started = Instant::now();
        while started.elapsed() < RETRY_FOR {
            let (transaction, value) = match build().await? {
                Attempt::Done(value) => return Ok(value),
                Attempt::Commit(transaction, value) => (transaction, value),
            };
            let checks = transaction.checks.clone();
            match self.store().commit(transaction).await {
                Ok(revision) => return self.wait_for(revision).await.map(|()| value),
                Err(StoreError::Conflict { key, .. }) => {
                    let failed = checks.iter().find(|(checked, _)| *checked == key);
                    self.wait_until_changed(&key, failed.map(|(_, check)| *check)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Unavailable("other requests keep changing it: try again".to_owned()))
    }
}
