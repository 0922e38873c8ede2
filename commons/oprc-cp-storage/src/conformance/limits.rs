//! Limits, which are the same for all back ends.

use crate::{Check, Error, MAX_BYTES, MAX_OPERATIONS, Store, Transaction};

pub async fn reject_invalid_and_oversized_input(store: &Store) {
    let (mut puts, mut checks) = (Transaction::new(), Transaction::new().put("a", ""));
    for index in 0..=MAX_OPERATIONS {
        puts = puts.put(format!("key/{index}"), "");
        checks = checks.check(format!("key/{index}"), Check::Absent);
    }
    let large = Transaction::new().put("a", "").put("b", vec![0; MAX_BYTES]);
    let long = Transaction::new().put("k".repeat(1000), "");
    for transaction in [puts, checks, large, long] {
        let rejected = store.commit(transaction).await;
        assert!(matches!(rejected, Err(Error::TooLarge { .. })), "{rejected:?}");
    }
    for key in ["", "/", "a//b", "/a", "a/", "a\nb"] {
        for transaction in [
            Transaction::new().put("a", "").put(key, ""),
            Transaction::new().put("a", "").delete(key),
            Transaction::new().put("a", "").check(key, Check::Absent),
        ] {
            let rejected = store.commit(transaction).await;
            assert!(matches!(rejected, Err(Error::Invalid { .. })), "{key:?}: {rejected:?}");
        }
        assert!(matches!(store.get(key).await, Err(Error::Invalid { .. })), "{key:?}");
        assert!(
            matches!(store.acquire_lease(key, "we").await, Err(Error::Invalid { .. })),
            "{key:?}"
        );
    }
    for twice in [
        Transaction::new().put("a", "1").put("a", "2"),
        Transaction::new().put("a", "").delete("a"),
    ] {
        assert!(matches!(store.commit(twice).await, Err(Error::Invalid { .. })));
    }
    assert!(matches!(store.acquire_lease("a", "").await, Err(Error::Invalid { .. })));
    assert!(matches!(store.range("", None, 0).await, Err(Error::Invalid { .. })));
    assert!(matches!(store.range("b", Some("c"), 1).await, Err(Error::Invalid { .. })));
    assert!(store.watch("a\0", None).await.is_err());
    assert_eq!(store.list("").await.unwrap().entries, []);
}

pub async fn accept_the_largest_transactions(store: &Store) {
    let mut largest = Transaction::new();
    for index in 0..MAX_OPERATIONS {
        largest = largest
            .put(format!("many/{index:03}"), "x")
            .check(format!("many/{index:03}"), Check::Absent);
    }
    store.commit(largest.clone()).await.unwrap();
    assert_eq!(store.list("many/").await.unwrap().entries.len(), MAX_OPERATIONS);
    // A failure reads the versions of all keys.
    let conflict = store.commit(largest).await;
    assert!(matches!(conflict, Err(Error::Conflict { key, .. }) if key == "many/000"));
    let mut watch = store.watch("large/", None).await.unwrap();
    let large = vec![1; MAX_BYTES - "large/0".len()];
    for index in 0..8 {
        let put = Transaction::new().put(format!("large/{index}"), large.clone());
        let revision = store.commit(put).await.unwrap();
        let seen = watch.next().await.unwrap();
        assert_eq!(seen.revision, revision);
        assert!(seen.changes[0].value().is_some_and(|value| *value == large));
    }
    let page = store.list("large/").await.unwrap();
    assert_eq!(page.entries.len(), 8);
    assert!(page.entries.iter().all(|entry| entry.value == large));
}
