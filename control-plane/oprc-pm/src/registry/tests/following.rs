//! The cache follows the store.

use std::time::Duration;

use async_trait::async_trait;
use oprc_cp_storage::{
    Backend, Entry, Error as StoreError, Lease, Page, Result, Revision, Transaction, Watch,
};
use tokio::sync::watch;

use super::{
    super::{Filter, Paging},
    *,
};

const TEST_TIMEOUT: Duration = Duration::from_mins(1);

async fn until(registry: &Registry, holds: impl Fn(&Registry) -> bool) {
    let mut changes = registry.cache.changes();
    let waiting = async {
        while !holds(registry) {
            changes.changed().await.unwrap();
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, waiting).await.unwrap();
}

#[tokio::test]
async fn sees_writes_of_another_process() {
    let store = Store::memory();
    let (one, other) =
        (registry_of(store.clone()).await.unwrap(), registry_of(store.clone()).await.unwrap());
    publish(&one, &package("a", "1.0.0", "")).await.unwrap();
    until(&other, |it| it.version("a", "1.0.0").is_ok()).await;
    assert_eq!(other.version("a", "1.0.0").unwrap(), one.version("a", "1.0.0").unwrap());
    // Existing packages are listed at the start, also dependents before their dependencies.
    publish(&one, &package("z", "1.0.0", "")).await.unwrap();
    let text = "name: b\nversion: 1.0.0\ndependencies: [{name: z}]\n\
                classes: [{key: Child, parents: [z.Greeter]}]";
    publish(&one, text).await.unwrap();
    let late = registry_of(store).await.unwrap();
    assert_eq!(late.count(), (3, 3));
    let classes = |it: &Registry| it.classes(&Filter::default(), &Paging::default()).unwrap();
    assert_eq!(classes(&late), classes(&one));
    assert_eq!(classes(&late).items[1].lineage, ["b.Child", "z.Greeter"]);
}

#[tokio::test]
async fn skips_records_that_cannot_be_decoded() {
    let store = Store::memory();
    let registry = registry_of(store.clone()).await.unwrap();
    publish(&registry, &package("a", "1.0.0", "")).await.unwrap();
    let bad = Transaction::new()
        .put("version/b/1.0.0", "{")
        .put("version/b/x", "{}")
        .put("package/b", "[]")
        .put("deployment/d", "7");
    registry.cache.wait_for(store.commit(bad).await.unwrap()).await.unwrap();
    assert_eq!(registry.count().1, 1);
    assert_eq!(reason(&registry.package("b").unwrap_err()), "NOT_FOUND");
    let page = registry.list(&Filter::default(), &Paging::default()).unwrap();
    assert_eq!(page.items.len(), 1);
}

/// A store whose watches fail on demand.
struct Frail {
    store: Store,
    cuts: watch::Receiver<Option<StoreError>>,
}

#[async_trait]
impl Backend for Frail {
    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        self.store.get(key).await
    }
    async fn get_many(&self, keys: &[String]) -> Result<Vec<Option<Entry>>> {
        self.store.get_many(keys).await
    }
    async fn range(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        let cut = self.cuts.borrow().clone();
        match cut {
            Some(cut) => Err(cut),
            None => self.store.range(prefix, after, limit).await,
        }
    }
    async fn commit(&self, transaction: Transaction) -> Result<Revision> {
        self.store.commit(transaction).await
    }
    async fn watch(&self, prefix: &str, after: Option<Revision>) -> Result<Watch> {
        let cut = self.cuts.borrow().clone();
        match cut {
            Some(cut) => Err(cut),
            // From the beginning if possible, so that listed changes are repeated.
            None => match self.store.watch(prefix, Some(Revision(0))).await {
                Err(StoreError::Gap) => self.store.watch(prefix, after).await,
                watch => watch,
            },
        }
    }
    async fn acquire_lease(&self, name: &str, identity: &str) -> Result<Lease> {
        self.store.acquire_lease(name, identity).await
    }
    async fn close(&self) {}
}

#[tokio::test]
async fn lists_again_after_the_watch_was_lost() {
    let away = StoreError::Unavailable { reason: "away".to_owned() };
    let (cut, cuts) = watch::channel(Some(away));
    let memory = Store::memory();
    let start = Store::new(Frail { store: memory.clone(), cuts: cuts.clone() });
    assert_eq!(reason(&registry_of(start.clone()).await.err().unwrap()), "UNAVAILABLE");
    publish(&registry_of(memory.clone()).await.unwrap(), &package("a", "1.0.0", "")).await.unwrap();
    cut.send_replace(None);
    let registry = registry_of(start).await.unwrap();
    publish(&registry, &package("a", "1.1.0", "")).await.unwrap();
    registry.delete_version("a", "1.0.0", None).await.unwrap();
    assert_eq!(registry.stale(), None);
    // More than a watcher is sent: it falls behind and lists again.
    for at in 0..5000 {
        memory.commit(Transaction::new().put(format!("noise/{at}"), "")).await.unwrap();
    }
    publish(&registry, &package("a", "1.2.0", "")).await.unwrap();
    until(&registry, |it| it.count() == (1, 2) && it.stale().is_none()).await;
}
