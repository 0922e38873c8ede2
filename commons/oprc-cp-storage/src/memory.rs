//! The in-memory back end.

use std::{collections::BTreeMap, ops::Bound};

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::{
    Backend, Change, Commit, Entry, Lease, Page, Result, Revision, Transaction, Watch,
    history::History, key, local_owners::LocalOwners,
};

/// No call waits, so none needs a deadline.
#[derive(Default)]
pub(crate) struct Memory {
    state: Mutex<State>,
    history: History,
    owners: LocalOwners,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<String, Entry>,
    revision: Revision,
}

#[async_trait]
impl Backend for Memory {
    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        Ok(self.state.lock().entries.get(key).cloned())
    }

    async fn get_many(&self, keys: &[String]) -> Result<Vec<Option<Entry>>> {
        let state = self.state.lock();
        Ok(keys.iter().map(|key| state.entries.get(key).cloned()).collect())
    }

    async fn range(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        let state = self.state.lock();
        let mut found = state
            .entries
            .range::<str, _>((key::start(prefix, after), Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(_, entry)| entry);
        let entries = found.by_ref().take(limit).cloned().collect();
        Ok(Page { entries, revision: state.revision, more: found.next().is_some() })
    }

    async fn count(&self, prefix: &str) -> Result<u64> {
        let state = self.state.lock();
        let found = state.entries.range::<str, _>((key::start(prefix, None), Bound::Unbounded));
        let count = found.take_while(|(key, _)| key.starts_with(prefix)).count();
        Ok(u64::try_from(count).unwrap_or(u64::MAX))
    }

    async fn commit(&self, transaction: Transaction) -> Result<Revision> {
        let mut state = self.state.lock();
        self.owners.check(transaction.fence.as_ref())?;
        transaction.check_versions(|key| Ok(state.entries.get(key).map(|entry| entry.version)))?;
        let version = Revision(state.revision.0 + 1);
        let mut changes = transaction.changes;
        changes.retain(|change| match change.clone() {
            Change::Put { key, value } => {
                state.entries.insert(key.clone(), Entry { key, value, version });
                true
            }
            Change::Delete { key } => state.entries.remove(&key).is_some(),
        });
        if !changes.is_empty() {
            state.revision = version;
            // Under the lock, to publish in the order of the commits.
            self.history.publish(Commit { revision: version, changes });
        }
        Ok(state.revision)
    }

    async fn watch(&self, prefix: &str, after: Option<Revision>) -> Result<Watch> {
        self.history.watch(prefix, after)
    }

    async fn acquire_lease(&self, name: &str, identity: &str) -> Result<Lease> {
        self.owners.acquire(name, identity).map(Lease::in_process)
    }

    async fn close(&self) {}
}
