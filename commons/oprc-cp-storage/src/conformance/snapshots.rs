//! Snapshots.

use crate::{Entry, Store, Transaction};

pub async fn do_not_change(store: &Store) {
    const COUNT: usize = 50;
    for index in 0..COUNT {
        store.commit(Transaction::new().put(format!("n/{index:03}"), "before")).await.unwrap();
    }
    let expected = store.list("n/").await.unwrap();
    let snapshot = store.snapshot().await.unwrap();
    // Others may use the same etcd, with other prefixes.
    assert!(snapshot.revision() >= expected.revision);
    let mut found: Vec<Entry> = Vec::new();
    for round in 0.. {
        // Each page is read after further changes.
        let transaction = Transaction::new()
            .put(format!("n/{:03}", COUNT - 1 - round), "after")
            .delete(format!("n/{:03}", COUNT - 2 - round))
            .put(format!("n/{:03}", COUNT + round), "new");
        store.commit(transaction).await.unwrap();
        let after = found.last().map(|entry| entry.key.clone());
        let page = snapshot.range("n/", after.as_deref(), 7).await.unwrap();
        assert_eq!(page.revision, snapshot.revision());
        assert!(page.entries.len() == 7 || !page.more);
        found.extend(page.entries);
        if !page.more {
            break;
        }
    }
    assert_eq!(found, expected.entries);
    assert_ne!(store.list("n/").await.unwrap().entries, expected.entries);
    assert!(snapshot.range("n/", None, 0).await.is_err());
    assert!(snapshot.range("n/", Some("a"), 1).await.is_err());
    // What this process reads is at least what it has written, if its member is the only one.
    let now = store.get("n/000").await.unwrap();
    assert_eq!(store.get_stale("n/000").await.unwrap(), now);
}
