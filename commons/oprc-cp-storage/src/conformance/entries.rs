//! Entries.

use crate::{Entry, Store, Transaction};

pub async fn keep_keys_and_values_unchanged(store: &Store) {
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

/// Writers change two entries together, so readers must see both changes or none.
pub async fn are_read_together_at_one_revision(store: &Store) {
    let keys = ["one", "missing", "other"].map(str::to_owned);
    assert_eq!(store.get_many(&keys).await.unwrap(), [None, None, None]);
    assert_eq!(store.get_many(&[]).await.unwrap(), []);
    assert_eq!(store.get_many_stale(&keys).await.unwrap(), [None, None, None]);
    let put = |value: usize| {
        let value = value.to_string();
        store.commit(Transaction::new().put("one", value.clone()).put("other", value))
    };
    put(0).await.unwrap();
    let write = async {
        for value in 1..100 {
            put(value).await.unwrap();
        }
    };
    let read = async {
        for _ in 0..100 {
            let found = store.get_many(&keys).await.unwrap();
            let [Some(one), None, Some(other)] = &found[..] else { panic!("{found:?}") };
            assert_eq!((one.key.as_str(), other.key.as_str()), ("one", "other"));
            assert_eq!((&one.value, one.version), (&other.value, other.version));
        }
    };
    tokio::join!(write, read);
    // Nothing is written any more, and this process has written through the same member.
    let newest = store.get_many(&keys).await.unwrap();
    assert_eq!(store.get_many_stale(&keys).await.unwrap(), newest);
    let many = vec!["one".to_owned(); crate::MAX_OPERATIONS + 1];
    assert!(matches!(store.get_many(&many).await, Err(crate::Error::TooLarge { .. })));
    assert!(matches!(store.get_many(&[String::new()]).await, Err(crate::Error::Invalid { .. })));
}

/// Also after a delete, and if the value is the same.
pub async fn get_a_new_version_with_every_write(store: &Store) {
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
    // Writes to other keys don't change the version.
    let put = store.commit(Transaction::new().put("key", "")).await.unwrap();
    store.commit(Transaction::new().put("other", "")).await.unwrap();
    assert_eq!(store.get("key").await.unwrap().unwrap().version, put);
}
