use std::time::Duration;

use async_trait::async_trait;

use crate::{Entry, Lease, Page, Result, Revision, Snapshot, Transaction, Watch};

/// The default deadline of a call.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(10);

/// Implements a [`crate::Store`], which validates all arguments.
///
/// Every call ends by its deadline. Dropping a future leaves nothing half done, but a transaction
/// may still be committed.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// See [`crate::Store::get`].
    async fn get(&self, key: &str) -> Result<Option<Entry>>;
    /// See [`crate::Store::get_many`].
    async fn get_many(&self, keys: &[String]) -> Result<Vec<Option<Entry>>>;
    /// See [`crate::Store::get_stale`].
    async fn get_stale(&self, key: &str) -> Result<Option<Entry>> {
        self.get(key).await
    }
    /// See [`crate::Store::get_many_stale`].
    async fn get_many_stale(&self, keys: &[String]) -> Result<Vec<Option<Entry>>> {
        self.get_many(keys).await
    }
    /// See [`crate::Store::range`].
    async fn range(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page>;
    /// See [`crate::Store::count`]. Reads all entries unless a back end can do better.
    async fn count(&self, prefix: &str) -> Result<u64> {
        let page = self.range(prefix, None, usize::MAX).await?;
        Ok(u64::try_from(page.entries.len()).unwrap_or(u64::MAX))
    }
    /// See [`crate::Store::snapshot`]. Copies all entries unless a back end can do better.
    async fn snapshot(&self) -> Result<Snapshot> {
        Ok(Snapshot::copied(self.range("", None, usize::MAX).await?))
    }
    /// See [`crate::Store::commit`].
    async fn commit(&self, transaction: Transaction) -> Result<Revision>;
    /// See [`crate::Store::watch`].
    async fn watch(&self, prefix: &str, after: Option<Revision>) -> Result<Watch>;
    /// See [`crate::Store::acquire_lease`].
    async fn acquire_lease(&self, name: &str, identity: &str) -> Result<Lease>;
    /// See [`crate::Store::close`].
    async fn close(&self);
}
