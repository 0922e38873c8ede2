//! The in-memory back end.

use std::{collections::BTreeMap, ops::Bound};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

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
    entries: BTreeMap<String, (Revision, Bytes)>,
    revision: Revision,
}

impl Memory {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

#[async_trait]
impl Backend for Memory {
    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        let state = self.state();
        Ok(state.entries.get(key).map(|(version, value)| Entry {
            key: key.to_owned(),
            value: value.clone(),
            version: *version,
        }))
    }

    async fn range(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        let state = self.state();
        let mut found = state
            .entries
            .range::<str, _>((key::start(prefix, after), Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix));
        let entries = found.by_ref().take(limit).map(|(key, (version, value))| Entry {
            key: key.clone(),
            value: value.clone(),
            version: *version,
        });
        let entries = entries.collect();
        Ok(Page { entries, revision: state.revision, more: found.next().is_some() })
    }

    async fn commit(&self, transaction: Transaction) -> Result<Revision> {
        let mut state = self.state();
        self.owners.check(transaction.fence.as_ref())?;
        transaction
            .check_versions(|key| Ok(state.entries.get(key).map(|(version, _)| *version)))?;
        let revision = Revision(state.revision.0 + 1);
        let mut changes = transaction.changes;
        changes.retain(|change| match change {
            Change::Put { key, value } => {
                state.entries.insert(key.clone(), (revision, value.clone()));
                true
            }
            Change::Delete { key } => state.entries.remove(key).is_some(),
        });
        if !changes.is_empty() {
            state.revision = revision;
            // Under the lock, to publish in the order of the commits.
            self.history.publish(Commit { revision, changes });
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
