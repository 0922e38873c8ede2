//! What a store stands on.

use async_trait::async_trait;

use crate::{Entry, Ownership, Page, Result, Revision, Transaction, Watch};

/// What a [`crate::Store`] stands on, which has checked what it is given.
///
/// Every call ends by its deadline. A future that is dropped leaves nothing half; a transaction may
/// still be made.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// See [`crate::Store::get`].
    async fn get(&self, key: &str) -> Result<Option<Entry>>;
    /// See [`crate::Store::range`].
    async fn range(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page>;
    /// See [`crate::Store::commit`].
    async fn commit(&self, transaction: Transaction) -> Result<Revision>;
    /// See [`crate::Store::watch`].
    async fn watch(&self, prefix: &str, after: Option<Revision>) -> Result<Watch>;
    /// See [`crate::Store::own`].
    async fn own(&self, name: &str, identity: &str) -> Result<Ownership>;
    /// See [`crate::Store::close`].
    async fn close(&self);
}
