//! That the index has what the store has.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use oprc_cp_storage::{
    Backend, Change, Entry, Error as Trouble, Ownership, Page, Result, Revision, Transaction, Watch,
};
use tokio::sync::watch;

use super::{
    super::{
        Filter, Paging,
        index::{Index, PREFIXES},
        marks::Mark,
    },
    *,
};

/// How long what is to come about may take until it is given up.
const PATIENCE: Duration = Duration::from_mins(1);

/// Waits until a registry is such: a write waits for its index only so long.
async fn until(registry: &Registry, such: impl Fn(&Registry) -> bool) {
    let waiting = async {
        while !such(registry) {
            registry.inner.followed.changed().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
}

#[tokio::test]
async fn another_process_is_seen() {
    let store = Store::memory();
    let (one, other) =
        (Registry::new(store.clone()).await.unwrap(), Registry::new(store.clone()).await.unwrap());
    publish(&one, &package("a", "1.0.0", "")).await.unwrap();
    until(&other, |it| it.version("a", "1.0.0").is_ok()).await;
    assert_eq!(other.version("a", "1.0.0").unwrap(), one.version("a", "1.0.0").unwrap());
    // What was there before is read at the start, dependents before what they depend on too.
    publish(&one, &package("z", "1.0.0", "")).await.unwrap();
    let text = "name: b\nversion: 1.0.0\ndependencies: [{name: z}]\n\
                classes: [{key: Child, parents: [z.Greeter]}]";
    publish(&one, text).await.unwrap();
    let late = Registry::new(store).await.unwrap();
    assert_eq!(late.count(), (3, 3));
    let classes = |it: &Registry| it.classes(&Filter::default(), &Paging::default()).unwrap();
    assert_eq!(classes(&late), classes(&one));
    assert_eq!(classes(&late).items[1].lineage, ["b.Child", "z.Greeter"]);
}

#[tokio::test]
async fn what_cannot_be_read_is_left_out() {
    let store = Store::memory();
    let registry = Registry::new(store.clone()).await.unwrap();
    publish(&registry, &package("a", "1.0.0", "")).await.unwrap();
    let bad = Transaction::new()
        .put("version/b/1.0.0", "{")
        .put("version/b/x", "{}")
        .put("package/b", "[]")
        .put("deployment/d", "7");
    registry.inner.followed.wait(store.commit(bad).await.unwrap()).await;
    assert_eq!(registry.count().1, 1);
    assert_eq!(reason(&registry.package("b").unwrap_err()), "NOT_FOUND");
    let page = registry.list(&Filter::default(), &Paging::default()).unwrap();
    assert_eq!(page.items.len(), 1);
}

/// A store whose watches end, and begin again, when told to.
struct Frail {
    store: Store,
    cuts: watch::Receiver<Option<Trouble>>,
}

#[async_trait]
impl Backend for Frail {
    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        self.store.get(key).await
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
            // From the beginning where that is known: what was read already comes again.
            None => match self.store.watch(prefix, Some(Revision(0))).await {
                Err(Trouble::Gap) => self.store.watch(prefix, after).await,
                watch => watch,
            },
        }
    }
    async fn own(&self, name: &str, identity: &str) -> Result<Ownership> {
        self.store.own(name, identity).await
    }
    async fn close(&self) {}
}

#[tokio::test]
async fn a_store_that_was_away_is_read_anew() {
    let away = Trouble::Unavailable { reason: "away".to_owned() };
    let (cut, cuts) = watch::channel(Some(away));
    let memory = Store::memory();
    let start = Store::new(Frail { store: memory.clone(), cuts: cuts.clone() });
    assert_eq!(reason(&Registry::new(start.clone()).await.unwrap_err()), "UNAVAILABLE");
    publish(&Registry::new(memory.clone()).await.unwrap(), &package("a", "1.0.0", ""))
        .await
        .unwrap();
    cut.send_replace(None);
    let registry = Registry::new(start).await.unwrap();
    publish(&registry, &package("a", "1.1.0", "")).await.unwrap();
    registry.delete_version("a", "1.0.0", None).await.unwrap();
    assert_eq!(registry.stale(), None);
    // Far more than a watcher is told: it falls behind, and reads anew.
    for at in 0..5000 {
        memory.commit(Transaction::new().put(format!("noise/{at}"), "")).await.unwrap();
    }
    publish(&registry, &package("a", "1.2.0", "")).await.unwrap();
    until(&registry, |it| it.count() == (1, 2) && it.stale().is_none()).await;
}

#[tokio::test]
async fn the_follower_ends_with_the_registry() {
    let registry = registry().await;
    let followed = Arc::downgrade(&registry.inner.followed);
    drop(registry);
    tokio::time::timeout(PATIENCE, async {
        while followed.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn nobody_who_reads_waits_while_a_package_is_settled() {
    let registry = registry().await;
    publish(&registry, &package("a", "1.0.0", "metadata: {tags: [t]}")).await.unwrap();
    let mut changes = Vec::new();
    for prefix in PREFIXES {
        let entries = registry.inner.store.list(prefix).await.unwrap().entries;
        changes.extend(
            entries
                .into_iter()
                .map(|it| (it.version, Change::Put { key: it.key, value: it.value })),
        );
    }
    let mut index = Index::default();
    // All of the work is done on an index that others may read.
    let staged = index.stage(changes.iter().map(|(version, change)| (*version, change)));
    assert!(index.packages().is_empty());
    index.take(staged);
    let found = index.package("a").unwrap();
    assert_eq!((found.summary.latest.as_str(), found.catalogue.classes.len()), ("1.0.0", 1));
    let gone = changes
        .iter()
        .map(|(version, change)| (*version, Change::Delete { key: change.key().to_owned() }));
    let gone: Vec<_> = gone.collect();
    index.apply(gone.iter().map(|(version, change)| (*version, change)));
    assert!(index.packages().is_empty());
    let marked = index.marks().narrowest([Mark::Tag("t".to_owned())].into_iter());
    assert!(marked.unwrap().is_empty());
}
