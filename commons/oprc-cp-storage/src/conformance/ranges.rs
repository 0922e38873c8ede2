//! Ranges.

use std::str::from_utf8;

use crate::{Entry, MAX_OPERATIONS, Store, Transaction};

async fn fill(store: &Store, prefix: &str, count: usize, value: &str) {
    let keys: Vec<_> = (0..count).map(|index| format!("{prefix}{index:04}")).collect();
    for keys in keys.chunks(MAX_OPERATIONS) {
        let put = |transaction: Transaction, key: &String| transaction.put(key, value.to_owned());
        store.commit(keys.iter().fold(Transaction::new(), put)).await.unwrap();
        // The memory back end never yields.
        tokio::task::yield_now().await;
    }
}

fn keys(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.key.as_str()).collect()
}

pub async fn return_ordered_pages(store: &Store) {
    const COUNT: usize = 300;
    fill(store, "n/", COUNT, "").await;
    let whole = store.list("n/").await.unwrap();
    assert_eq!(whole.entries.len(), COUNT);
    assert!(!whole.more);
    assert!(keys(&whole.entries).is_sorted());
    for limit in [1, 7, 128, 129, 299, 300, 301] {
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let after = entries.last().map(|entry| entry.key.clone());
            let page = store.range("n/", after.as_deref(), limit).await.unwrap();
            assert!(page.entries.len() == limit || !page.more);
            entries.extend(page.entries);
            assert_eq!(page.more, entries.len() < COUNT);
            if !page.more {
                break;
            }
        }
        assert_eq!(entries, whole.entries, "pages of {limit}");
    }
    let past = store.range("n/", Some("n/9"), 10).await.unwrap();
    assert_eq!((past.entries.len(), past.more), (0, false));
    assert!(past.revision >= whole.revision);
    // After a missing key, and after the prefix itself.
    let page = store.range("n/", Some("n/0100x"), 1).await.unwrap();
    assert_eq!(keys(&page.entries), ["n/0101"]);
    let page = store.range("n/", Some("n/"), 1).await.unwrap();
    assert_eq!(keys(&page.entries), ["n/0000"]);
}

/// A prefix need not end at a `/`.
pub async fn match_only_the_prefix(store: &Store) {
    let all = ["a", "a!", "a/b", "a/b/c", "a0", "ab", "b", "é", "éa", "ê"];
    let put = |transaction: Transaction, key: &&str| transaction.put(*key, "");
    store.commit(all.iter().fold(Transaction::new(), put)).await.unwrap();
    let mut sorted = all;
    sorted.sort_unstable();
    for prefix in ["", "a", "a/", "a/b", "a/b/", "ab", "b", "c", "é", "~", "zz"] {
        let expected: Vec<_> =
            sorted.iter().filter(|key| key.starts_with(prefix)).copied().collect();
        let page = store.list(prefix).await.unwrap();
        assert_eq!(keys(&page.entries), expected, "{prefix:?}");
    }
}

/// Even if others write, and if the back end needs several requests.
pub async fn are_consistent_at_one_revision(store: &Store) {
    // A generation is written by three transactions.
    const COUNT: usize = 3 * MAX_OPERATIONS;
    const GENERATIONS: u32 = 20;
    fill(store, "n/", COUNT, "0").await;
    let write = async {
        for generation in 1..=GENERATIONS {
            fill(store, "n/", COUNT, &generation.to_string()).await;
        }
    };
    let read = async {
        let mut newest = 0;
        while newest < GENERATIONS {
            let page = store.list("n/").await.unwrap();
            let generations: Vec<u32> = page
                .entries
                .iter()
                .map(|entry| from_utf8(&entry.value).unwrap().parse().unwrap())
                .collect();
            let last_version = page.entries.iter().map(|entry| entry.version).max();
            assert!(last_version <= Some(page.revision));
            assert_eq!(generations.len(), COUNT);
            // Each third is one generation; the first is at most one ahead of the last.
            assert!(generations.is_sorted_by(|before, after| before >= after), "{generations:?}");
            assert!(generations[0] - generations[COUNT - 1] <= 1, "{generations:?}");
            for third in generations.chunks(MAX_OPERATIONS) {
                assert!(third.iter().all(|generation| *generation == third[0]));
            }
            assert!(generations[COUNT - 1] >= newest);
            newest = generations[COUNT - 1];
            tokio::task::yield_now().await;
        }
    };
    futures::join!(write, read);
}

pub async fn are_counted(store: &Store) {
    assert_eq!(store.count("").await.unwrap(), 0);
    fill(store, "n/", 300, "").await;
    fill(store, "n!", 2, "").await;
    store.commit(Transaction::new().delete("n/0007")).await.unwrap();
    for (prefix, count) in [("n/", 299), ("n", 301), ("n/000", 9), ("x", 0), ("n/0008", 1)] {
        assert_eq!(store.count(prefix).await.unwrap(), count, "{prefix}");
    }
    assert!(store.count("a\n").await.is_err());
}
