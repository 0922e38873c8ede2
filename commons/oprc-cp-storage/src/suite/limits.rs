//! What is too much or makes no sense is refused, by all stores alike.

use crate::{Check, Error, MAX_BYTES, MAX_OPERATIONS, Store, Transaction};

/// And nothing is changed.
pub async fn hold(store: &Store) {
    let (mut puts, mut checks) = (Transaction::new(), Transaction::new().put("a", ""));
    for index in 0..=MAX_OPERATIONS {
        puts = puts.put(format!("key/{index}"), "");
        checks = checks.check(format!("key/{index}"), Check::Absent);
    }
    let large = Transaction::new().put("a", "").put("b", vec![0; MAX_BYTES]);
    let long = Transaction::new().put("k".repeat(1000), "");
    for transaction in [puts, checks, large, long] {
        let refused = store.commit(transaction).await;
        assert!(matches!(refused, Err(Error::TooLarge { .. })), "{refused:?}");
    }
    for key in ["", "/", "a//b", "/a", "a/", "a\nb"] {
        for transaction in [
            Transaction::new().put("a", "").put(key, ""),
            Transaction::new().put("a", "").delete(key),
            Transaction::new().put("a", "").check(key, Check::Absent),
        ] {
            let refused = store.commit(transaction).await;
            assert!(matches!(refused, Err(Error::Invalid { .. })), "{key:?}: {refused:?}");
        }
        assert!(matches!(store.get(key).await, Err(Error::Invalid { .. })), "{key:?}");
        assert!(matches!(store.own(key, "we").await, Err(Error::Invalid { .. })), "{key:?}");
    }
    for twice in [
        Transaction::new().put("a", "1").put("a", "2"),
        Transaction::new().put("a", "").delete("a"),
    ] {
        assert!(matches!(store.commit(twice).await, Err(Error::Invalid { .. })));
    }
    assert!(matches!(store.own("a", "").await, Err(Error::Invalid { .. })));
    assert!(matches!(store.range("", None, 0).await, Err(Error::Invalid { .. })));
    assert!(matches!(store.range("b", Some("c"), 1).await, Err(Error::Invalid { .. })));
    assert!(store.watch("a\0", None).await.is_err());
    assert_eq!(store.list("").await.unwrap().entries, []);
}

/// The largest transactions, and a list of many of them.
pub async fn are_wide_enough_for_what_they_allow(store: &Store) {
    let mut most = Transaction::new();
    for index in 0..MAX_OPERATIONS {
        most = most
            .put(format!("many/{index:03}"), "x")
            .check(format!("many/{index:03}"), Check::Absent);
    }
    store.commit(most.clone()).await.unwrap();
    assert_eq!(store.list("many/").await.unwrap().entries.len(), MAX_OPERATIONS);
    // All of them are looked at when one fails.
    let conflict = store.commit(most).await;
    assert!(matches!(conflict, Err(Error::Conflict { key, .. }) if key == "many/000"));
    let mut watch = store.watch("large/", None).await.unwrap();
    let large = vec![1; MAX_BYTES - "large/0".len()];
    for index in 0..8 {
        let put = Transaction::new().put(format!("large/{index}"), large.clone());
        let revision = store.commit(put).await.unwrap();
        let told = watch.next().await.unwrap();
        assert_eq!(told.revision, revision);
        assert!(told.changes[0].value().is_some_and(|value| *value == large));
    }
    let page = store.list("large/").await.unwrap();
    assert_eq!(page.entries.len(), 8);
    assert!(page.entries.iter().all(|entry| entry.value == large));
}
