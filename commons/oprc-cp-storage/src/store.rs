use std::sync::Arc;

use crate::{
    Backend, Entry, EtcdOptions, Lease, Page, RedbOptions, Result, Revision, Snapshot, Transaction,
    Watch,
    etcd::Etcd,
    key::{check_identity, check_key, check_prefix, check_range},
    memory::Memory,
    redb::Redb,
    transaction::check_operations,
};

/// A transactional store of entries. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    backend: Arc<dyn Backend>,
}

impl Store {
    /// Its content is lost with the process.
    pub fn memory() -> Self {
        Self::new(Memory::default())
    }

    /// A file that only this process can open: others get [`crate::Error::LeaseHeld`].
    pub async fn redb(options: RedbOptions) -> Result<Self> {
        Redb::open(options).await.map(Self::new)
    }

    /// Fails if etcd doesn't respond.
    pub async fn etcd(options: EtcdOptions) -> Result<Self> {
        Etcd::open(options).await.map(Self::new)
    }

    pub fn new(backend: impl Backend) -> Self {
        Self { backend: Arc::new(backend) }
    }

    pub async fn get(&self, key: &str) -> Result<Option<Entry>> {
        check_key(key)?;
        self.backend.get(key).await
    }

    /// Entries by key, all read at one revision: as many as keys, in the same order.
    pub async fn get_many(&self, keys: &[String]) -> Result<Vec<Option<Entry>>> {
        check_keys(keys)?;
        self.backend.get_many(keys).await
    }

    /// An entry as this process's member of the store knows it, which may be an older state. Succeeds
    /// even if a majority of the members is unreachable.
    pub async fn get_stale(&self, key: &str) -> Result<Option<Entry>> {
        check_key(key)?;
        self.backend.get_stale(key).await
    }

    /// Like [`Store::get_stale`], all at one revision.
    pub async fn get_many_stale(&self, keys: &[String]) -> Result<Vec<Option<Entry>>> {
        check_keys(keys)?;
        self.backend.get_many_stale(keys).await
    }

    /// The number of entries whose keys start with the prefix.
    pub async fn count(&self, prefix: &str) -> Result<u64> {
        check_prefix(prefix)?;
        self.backend.count(prefix).await
    }

    /// All entries at one revision, to be read in pages.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        self.backend.snapshot().await
    }

    /// Up to `limit` entries whose keys start with the prefix, optionally only those after a key.
    /// All are read at one revision; the next page may be at another one.
    pub async fn range(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        check_range(prefix, after, limit)?;
        self.backend.range(prefix, after, limit).await
    }

    /// All entries whose keys start with the prefix, read at one revision. A watch can start from
    /// that revision.
    pub async fn list(&self, prefix: &str) -> Result<Page> {
        self.range(prefix, None, usize::MAX).await
    }

    /// Applies all changes of a transaction if all of its checks hold, and none otherwise. Returns
    /// the new revision, which is the version of every entry that was put. The changes are durable
    /// once this returns.
    ///
    /// Putting an unchanged value is a change; deleting a missing entry is not.
    pub async fn commit(&self, transaction: Transaction) -> Result<Revision> {
        transaction.check_limits()?;
        self.backend.commit(transaction).await
    }

    /// All changes of entries whose keys start with the prefix, made after a revision or after this
    /// call: each once, in order, those of one transaction together.
    pub async fn watch(&self, prefix: &str, after: Option<Revision>) -> Result<Watch> {
        check_prefix(prefix)?;
        self.backend.watch(prefix, after).await
    }

    /// Acquires the lease with this name, which at most one process holds at a time. It is lost
    /// when the process ends or can't reach the store. Others see `identity` as its holder.
    pub async fn acquire_lease(&self, name: &str, identity: &str) -> Result<Lease> {
        check_key(name)?;
        check_identity(identity)?;
        self.backend.acquire_lease(name, identity).await
    }

    /// Ends background tasks and closes files; further calls may fail.
    pub async fn close(&self) {
        self.backend.close().await;
    }
}

fn check_keys(keys: &[String]) -> Result<()> {
    check_operations(keys.len(), "reads")?;
    keys.iter().try_for_each(|key| check_key(key))
}

impl std::fmt::Debug for Store {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Store")
    }
}
