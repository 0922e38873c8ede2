//! The store as its users see it.

use std::{sync::Arc, time::Duration};

use crate::{
    Backend, Entry, Error, EtcdOptions, Ownership, Page, RedbOptions, Result, Revision,
    Transaction, Watch,
    etcd::Etcd,
    key::{check_identity, check_key, check_prefix},
    memory::Memory,
    redb::Redb,
};

/// How long a call may take, unless its store says otherwise.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// A transactional store of entries. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    backend: Arc<dyn Backend>,
}

impl Store {
    /// One that is gone with the process.
    pub fn memory() -> Self {
        Self::new(Memory::default())
    }

    /// One in a file, for this process alone: another one gets [`crate::Error::Owned`].
    pub async fn redb(options: RedbOptions) -> Result<Self> {
        Redb::open(options).await.map(Self::new)
    }

    /// One in an etcd, which must answer.
    pub async fn etcd(options: EtcdOptions) -> Result<Self> {
        Etcd::open(options).await.map(Self::new)
    }

    /// One on a back end of the caller's own.
    pub fn new(backend: impl Backend) -> Self {
        Self { backend: Arc::new(backend) }
    }

    /// An entry, if there is one.
    pub async fn get(&self, key: &str) -> Result<Option<Entry>> {
        check_key(key)?;
        self.backend.get(key).await
    }

    /// Up to `limit` entries whose keys begin with the prefix, those after a key of that range if
    /// one is given, all as they were at one revision. Another page is as of another revision.
    pub async fn range(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        check_prefix(prefix)?;
        if limit == 0 {
            return Err(Error::invalid("a page has at least one entry"));
        }
        if let Some(after) = after {
            check_prefix(after)?;
            if !after.starts_with(prefix) {
                return Err(Error::invalid(format!("{after:?} isn't in the range of {prefix:?}")));
            }
        }
        self.backend.range(prefix, after, limit).await
    }

    /// All entries whose keys begin with the prefix, as they were at one revision, which a watch
    /// can begin after.
    pub async fn list(&self, prefix: &str) -> Result<Page> {
        self.range(prefix, None, usize::MAX).await
    }

    /// Makes all changes of a transaction if all of its checks hold, and none otherwise. Gives the
    /// revision that they made: the version of every entry that was put. Once it is given, the
    /// changes are stored for good.
    ///
    /// Putting what is there already is a change; deleting what isn't there is none.
    pub async fn commit(&self, transaction: Transaction) -> Result<Revision> {
        transaction.check_limits()?;
        self.backend.commit(transaction).await
    }

    /// All changes of entries whose keys begin with the prefix, made after the revision given, or
    /// after the call: each once, in order, those of one transaction together.
    pub async fn watch(&self, prefix: &str, after: Option<Revision>) -> Result<Watch> {
        check_prefix(prefix)?;
        self.backend.watch(prefix, after).await
    }

    /// Makes the caller the only one that drives what it names, until it lets go, dies or is cut
    /// off. `identity` tells others who it is.
    pub async fn own(&self, name: &str, identity: &str) -> Result<Ownership> {
        check_key(name)?;
        check_identity(identity)?;
        self.backend.own(name, identity).await
    }

    /// Ends what runs in the background and lets go of files; further calls may fail.
    pub async fn close(&self) {
        self.backend.close().await;
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Store")
    }
}
