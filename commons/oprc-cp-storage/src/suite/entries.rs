//! Entries are stored as they are.

use crate::{Entry, Store, Transaction};

/// Whatever the bytes.
pub async fn are_stored_as_they_are(store: &Store) {
    assert_eq!(store.get("a").await.unwrap(), None);
    let large = vec![7; 100_000];
    let values: [(&str, &[u8]); 5] = [
        ("a", b"value"),
        ("a/b", b""),
        ("a/b/c d", b"\0\xff\n"),
        ("é/日本", "ü".as_bytes()),
        ("~", &large),
    ];
    let mut transaction = Transaction::new();
    for (key, value) in values {
        transaction = transaction.put(key, value.to_vec());
    }
    let revision = store.commit(transaction).await.unwrap();
    for (key, value) in values {
        let entry = Entry { key: key.to_owned(), value: value.to_vec().into(), version: revision };
        assert_eq!(store.get(key).await.unwrap(), Some(entry));
    }
    assert_eq!(store.list("").await.unwrap().entries.len(), values.len());
    store.commit(Transaction::new().delete("a").delete("é/日本")).await.unwrap();
    assert_eq!(store.get("a").await.unwrap(), None);
    assert_eq!(store.get("a/b").await.unwrap().unwrap().value, "");
    assert_eq!(store.list("").await.unwrap().entries.len(), values.len() - 2);
}

/// Also when they were deleted meanwhile, or put as they are.
pub async fn have_a_new_version_with_every_change(store: &Store) {
    let mut versions = Vec::new();
    for _ in 0..3 {
        for _ in 0..2 {
            let put = store.commit(Transaction::new().put("key", "same")).await.unwrap();
            assert_eq!(store.get("key").await.unwrap().unwrap().version, put);
            versions.push(put);
        }
        store.commit(Transaction::new().delete("key")).await.unwrap();
    }
    assert!(versions.is_sorted_by(|before, after| before < after), "{versions:?}");
    // An entry's version is its own.
    let put = store.commit(Transaction::new().put("key", "")).await.unwrap();
    store.commit(Transaction::new().put("other", "")).await.unwrap();
    assert_eq!(store.get("key").await.unwrap().unwrap().version, put);
}
