use std::collections::VecDeque;

use oprc_cp_storage::{Backend, Entry, Lease, Page, Result as StoreResult, Store, Watch};
use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::{Expected, ObjectId, class::State};

/// What happens to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It isn't stored, and the store doesn't know.
    Lost,
    /// An earlier commit that seemed to be lost is stored, and another node overwrites it.
    LateAndOverwritten,
    Unavailable,
    /// The next read fails, too.
    Late,
}

struct FaultyStore {
    inner: Store,
    faults: Mutex<VecDeque<Fault>>,
    fails_to_read: Mutex<bool>,
}

fn unavailable() -> StoreError {
    StoreError::Unavailable { reason: "refused".to_owned() }
}

#[tonic::async_trait]
impl Backend for FaultyStore {
    async fn get(&self, key: &str) -> StoreResult<Option<Entry>> {
        if std::mem::take(&mut *self.fails_to_read.lock()) {
            return Err(unavailable());
        }
        self.inner.get(key).await
    }

    async fn get_many(&self, keys: &[String]) -> StoreResult<Vec<Option<Entry>>> {
        self.inner.get_many(keys).await
    }
    async fn range(&self, prefix: &str, after: Option<&str>, limit: usize) -> StoreResult<Page> {
        self.inner.range(prefix, after, limit).await
    }

    async fn commit(&self, transaction: Transaction) -> StoreResult<Revision> {
        let fault = self.faults.lock().pop_front();
        match fault {
            None => {}
            Some(Fault::Lost) => {
                return Err(StoreError::UnknownOutcome { reason: "no response".to_owned() });
            }
            Some(Fault::Unavailable) => return Err(unavailable()),
            Some(Fault::Late) => {
                self.inner.commit(transaction.clone()).await?;
                *self.fails_to_read.lock() = true;
            }
            Some(Fault::LateAndOverwritten) => {
                self.inner.commit(transaction.clone()).await?;
                let mut other = transaction.clone();
                other.checks.clear();
                for change in &mut other.changes {
                    if let Change::Put { value, .. } = change {
                        let text = String::from_utf8(value.to_vec()).unwrap();
                        *value = text.replace("\"last\":\"", "\"last\":\"other-").into();
                    }
                }
                self.inner.commit(other).await?;
            }
        }
        self.inner.commit(transaction).await
    }

    async fn watch(&self, prefix: &str, after: Option<Revision>) -> StoreResult<Watch> {
        self.inner.watch(prefix, after).await
    }

    async fn acquire_lease(&self, name: &str, identity: &str) -> StoreResult<Lease> {
        self.inner.acquire_lease(name, identity).await
    }

    async fn close(&self) {}
}

/// A patch of an object whose commits have these faults.
async fn patch(faults: &[Fault]) -> Result<u64, Error> {
    let class = serde_json::from_value(json!({"name": "c", "collections": ["C"]})).unwrap();
    let (inner, id) = (Store::memory(), ObjectId::parse("a").unwrap());
    let state = |count: i64| State::from_iter([("count".to_owned(), json!(count))]);
    let before = Grid::new(inner.clone(), Class::clone(&class));
    before.put(None, &id, state(0), Expected::Absent).await.unwrap();
    let faults = Mutex::new(faults.iter().copied().collect());
    let store = Store::new(FaultyStore { inner, faults, fails_to_read: Mutex::default() });
    let grid = Grid::new(store, class);
    grid.patch(None, &id, state(1), Expected::Anything).await.map(|it| it.version)
}

#[tokio::test]
async fn a_lost_commit_is_repeated() {
    patch(&[Fault::Lost]).await.unwrap();
    patch(&[Fault::Lost, Fault::Lost]).await.unwrap();
}

#[tokio::test]
async fn after_a_lost_commit_no_error_claims_that_nothing_was_changed() {
    for next in [Fault::LateAndOverwritten, Fault::Unavailable, Fault::Late] {
        let patched = patch(&[Fault::Lost, next]).await;
        assert!(matches!(patched, Err(Error::UnknownOutcome(_))), "{next:?}: {patched:?}");
    }
    assert!(matches!(patch(&[Fault::Unavailable]).await, Err(Error::Unavailable(_))));
}
