//! Ownership of partitions: which node executes the calls of which objects.
//!
//! The objects of a collection are divided into partitions by a hash of their ids. A record of the store
//! names the owner of each partition. Every commit checks the version of the record, so a former owner
//! can't commit; taking over a partition is a compare-and-set of its record.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
};

use oprc_cp_storage::{Change, Check, Error as StoreError, Revision, Store, Transaction};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{
    Error,
    config::Collection,
    partition::{hash, partition},
    record::{decode, encode, escape_collection},
};

/// The prefix of the keys of all records.
pub(crate) const PARTITIONS: &str = "p/";
/// Records that are changed in one transaction.
const BATCH: usize = 50;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OwnerRecord {
    pub(crate) node: String,
    /// Where it accepts calls of other nodes.
    pub(crate) address: String,
}

/// The owner of a partition, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) record: OwnerRecord,
    pub(crate) version: Revision,
}

/// A change of an owner: the key of the partition, and the owner that it has.
pub(crate) type Takeover = (String, Option<Owner>);

#[derive(Debug)]
pub(crate) struct Ownership {
    store: Store,
    own: OwnerRecord,
    /// Numbers of partitions by collection, as it is in keys.
    partitions: HashMap<String, u32>,
    /// By key.
    owners: RwLock<HashMap<String, Owner>>,
    /// Whether all records were read once.
    is_complete: AtomicBool,
    /// How often this node has become an owner.
    gained: watch::Sender<u64>,
}

fn partition_key(collection: &str, partition: u32) -> String {
    format!("{PARTITIONS}{collection}/{partition}")
}

/// The node that should own a partition: each takes about the same number, and few partitions move when
/// the nodes change.
pub(crate) fn home<'a>(key: &str, nodes: &'a [String]) -> Option<&'a String> {
    nodes.iter().max_by_key(|node| (hash(&[node, key]), *node))
}

/// A takeover can be repeated even if its outcome is unknown.
fn unavailable(error: &StoreError) -> Error {
    Error::Unavailable(error.to_string())
}

impl Ownership {
    pub(crate) fn new(store: Store, own: OwnerRecord, collections: &[Collection]) -> Self {
        let count = |it: &Collection| (escape_collection(&it.name), it.partition_count);
        let partitions = collections.iter().map(count).collect();
        let (owners, gained) = (RwLock::default(), watch::Sender::new(0));
        Self { store, own, partitions, owners, is_complete: AtomicBool::new(false), gained }
    }

    /// The key of the partition of an object.
    pub(crate) fn key_of(&self, object_key: &str) -> Result<String, Error> {
        let parts = object_key.strip_prefix("o/").and_then(|it| it.split_once('/'));
        let found = parts.and_then(|(collection, id)| {
            let count = *self.partitions.get(collection)?;
            Some(partition_key(collection, partition(id, count)))
        });
        found.ok_or_else(|| Error::Corrupt(format!("{object_key} is not the key of an object")))
    }

    /// The keys of all partitions.
    pub(crate) fn keys(&self) -> impl Iterator<Item = String> + '_ {
        self.partitions.iter().flat_map(|(collection, count)| {
            (0..*count).map(move |partition| partition_key(collection, partition))
        })
    }

    /// Whether the owners of all partitions are known.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Acquire)
    }

    /// The owner of a partition as far as this node knows.
    pub(crate) fn owner(&self, key: &str) -> Option<Owner> {
        self.owners.read().get(key).cloned()
    }

    pub(crate) fn is_own(&self, owner: &Owner) -> bool {
        owner.record.node == self.own.node
    }

    /// Whether this node owns the partition of an object, as far as it knows.
    pub(crate) fn owns(&self, object_key: &str) -> bool {
        let owner = self.key_of(object_key).ok().and_then(|key| self.owner(&key));
        owner.is_some_and(|it| self.is_own(&it))
    }

    /// How many partitions each node owns.
    pub(crate) fn counts(&self) -> HashMap<String, u32> {
        let mut counts = HashMap::new();
        for owner in self.owners.read().values() {
            *counts.entry(owner.record.node.clone()).or_default() += 1;
        }
        counts
    }

    /// How many partitions of a collection satisfy a condition on their owner.
    pub(crate) fn count(&self, collection: &str, is_counted: impl Fn(&str) -> bool) -> u32 {
        let collection = escape_collection(collection);
        let owners = self.owners.read();
        let count = self.partitions.get(&collection).copied().unwrap_or_default();
        let counted = (0..count).filter(|partition| {
            let owner = owners.get(&partition_key(&collection, *partition));
            owner.is_some_and(|it| is_counted(&it.record.node))
        });
        u32::try_from(counted.count()).unwrap_or(u32::MAX)
    }

    /// A check that this node has owned the partition of an object since now. Fails if it doesn't own it.
    pub(crate) fn fence(&self, object_key: &str) -> Result<(String, Check), Error> {
        let key = self.key_of(object_key)?;
        match self.owner(&key).filter(|it| self.is_own(it)) {
            Some(owner) => Ok((key, Check::Version(owner.version))),
            None => Err(Error::NotOwner(key)),
        }
    }

    /// Reads the owner of a partition from the store.
    pub(crate) async fn refresh(&self, key: &str) -> Result<Option<Owner>, Error> {
        let entry = self.store.get(key).await?;
        let Some(entry) = entry else { return Ok(None) };
        let owner = Owner { record: decode(key, &entry.value)?, version: entry.version };
        self.learn(key, owner.clone());
        Ok(Some(owner))
    }

    /// The present revision of the store.
    pub(crate) async fn revision(&self) -> Result<Revision, StoreError> {
        Ok(self.store.range(PARTITIONS, None, 1).await?.revision)
    }

    /// Takes partitions from the owners that they have. Returns how many were taken: those that have
    /// another owner meanwhile are skipped.
    pub(crate) async fn take(&self, takeovers: Vec<Takeover>) -> Result<usize, Error> {
        let targets = takeovers.into_iter().map(|(key, from)| (key, from, self.own.clone()));
        self.assign(targets.collect()).await
    }

    /// Gives partitions to nodes.
    pub(crate) async fn assign(
        &self,
        targets: Vec<(String, Option<Owner>, OwnerRecord)>,
    ) -> Result<usize, Error> {
        let mut assigned = 0;
        for batch in targets.chunks(BATCH) {
            match self.try_assign(batch).await {
                Ok(()) => assigned += batch.len(),
                Err(StoreError::Conflict { .. }) => {
                    for single in batch.chunks(1) {
                        match self.try_assign(single).await {
                            Ok(()) => assigned += 1,
                            Err(StoreError::Conflict { key, .. }) => {
                                self.refresh(&key).await?;
                            }
                            Err(error) => return Err(unavailable(&error)),
                        }
                    }
                }
                Err(error) => return Err(unavailable(&error)),
            }
        }
        Ok(assigned)
    }

    async fn try_assign(
        &self,
        batch: &[(String, Option<Owner>, OwnerRecord)],
    ) -> Result<(), StoreError> {
        let mut transaction = Transaction::new();
        for (key, from, to) in batch {
            let check = from.as_ref().map_or(Check::Absent, |it| Check::Version(it.version));
            let value = encode(to).unwrap_or_default();
            transaction = transaction.check(key, check).put(key, value);
        }
        // If the outcome is unknown, the same compare-and-set shows it.
        let version = match self.store.commit(transaction.clone()).await {
            Err(StoreError::UnknownOutcome { .. }) => self.store.commit(transaction).await?,
            other => other?,
        };
        for (key, _, to) in batch {
            self.learn(key, Owner { record: to.clone(), version });
        }
        Ok(())
    }

    fn learn(&self, key: &str, owner: Owner) {
        let is_gained = {
            let mut owners = self.owners.write();
            let known = owners.get(key);
            if known.is_some_and(|known| known.version >= owner.version) {
                return;
            }
            let is_gained = self.is_own(&owner) && !known.is_some_and(|it| self.is_own(it));
            owners.insert(key.to_owned(), owner);
            is_gained
        };
        if is_gained {
            self.gained.send_modify(|count| *count += 1);
        }
    }

    /// Notifies when this node has become the owner of a partition.
    pub(crate) fn gains(&self) -> watch::Receiver<u64> {
        self.gained.subscribe()
    }

    /// Follows the records until the watch ends.
    pub(crate) async fn follow(&self) -> Result<(), Error> {
        let page = self.store.list(PARTITIONS).await?;
        for entry in &page.entries {
            let record = decode(&entry.key, &entry.value)?;
            self.learn(&entry.key, Owner { record, version: entry.version });
        }
        self.is_complete.store(true, Ordering::Release);
        let mut watch = self.store.watch(PARTITIONS, Some(page.revision)).await?;
        loop {
            let commit = watch.next().await?;
            for change in &commit.changes {
                if let Change::Put { key, value } = change {
                    let owner = Owner { record: decode(key, value)?, version: commit.revision };
                    self.learn(key, owner);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
