//! Watches deliver everything once and in order, or report a gap.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use futures::future::join_all;
use proptest::{
    prelude::{Just, Strategy, any},
    prop_oneof,
    strategy::ValueTree as _,
    test_runner::TestRunner,
};
use tokio::sync::Semaphore;

use crate::{Change, Commit, Error, Revision, Store, Transaction};

const CHANGES: usize = 10_000;
const WRITERS: usize = 8;

/// Random transactions of several writers, watched under several prefixes, and once more from a
/// revision in the past.
pub async fn deliver_every_commit_once_in_order(store: &Store) {
    let begin = store.commit(Transaction::new().put("watched/first", "")).await.unwrap();
    let watchers: Vec<_> = [("", begin), ("watched/", begin), ("watched/3", begin)]
        .into_iter()
        .map(|(prefix, after)| (prefix.to_owned(), after))
        .collect();
    let commits: Arc<Mutex<BTreeMap<Revision, Vec<Change>>>> = Arc::default();
    let left = Arc::new(AtomicUsize::new(CHANGES));
    // Writers must not outrun a watcher by more than its queue, or it would report a gap.
    let ahead = Arc::new(Semaphore::new(1000));
    let writers = (0..WRITERS).map(|_| {
        let (store, commits, left, ahead) =
            (store.clone(), commits.clone(), left.clone(), ahead.clone());
        tokio::spawn(async move {
            let mut runner = TestRunner::default();
            while left.load(Ordering::Relaxed) > 0 {
                ahead.acquire().await.unwrap().forget();
                let transaction = some_transaction(&mut runner);
                let changes = transaction.changes.clone();
                let count = changes.len();
                let revision = store.commit(transaction).await.unwrap();
                let before = commits.lock().unwrap().insert(revision, changes);
                assert!(before.is_none(), "two transactions got revision {revision}");
                let enough = |left: usize| Some(left.saturating_sub(count));
                let _ = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enough);
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let slowest = Arc::new(Slowest { ahead, seen: Mutex::new(vec![0; watchers.len()]) });
    let readers = watchers.into_iter().enumerate().map(|(number, (prefix, after))| {
        let (store, slowest) = (store.clone(), slowest.clone());
        tokio::spawn(async move {
            let mut watch = store.watch(&prefix, Some(after)).await.unwrap();
            let mut seen = Vec::new();
            loop {
                let commit = watch.next().await.unwrap();
                let last = commit.changes.iter().any(|change| change.key() == "watched/3/last");
                seen.push(commit);
                if last {
                    return (prefix, after, seen);
                }
                // The narrow prefix sees only a part of the commits.
                if prefix != "watched/3" {
                    slowest.advance(number);
                }
            }
        })
    });
    let readers: Vec<_> = readers.collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let last = Transaction::new().put("watched/3/last", "");
    let changes = last.changes.clone();
    let revision = store.commit(last).await.unwrap();
    commits.lock().unwrap().insert(revision, changes);
    let commits = effective(&commits.lock().unwrap());
    assert!(commits.values().map(Vec::len).sum::<usize>() > CHANGES / 2);
    for reader in readers {
        let (prefix, after, seen) = reader.await.unwrap();
        assert_eq!(as_map(&seen), matching(&commits, &prefix, after), "{prefix:?}");
    }
    // Once more from the middle, after the last commit: everything, or a gap at once.
    let middle = *commits.keys().nth(commits.len() / 2).unwrap();
    let mut watch = match store.watch("", Some(middle)).await {
        Err(Error::Gap) => return,
        watch => watch.unwrap(),
    };
    let expected = matching(&commits, "", middle);
    let mut seen = Vec::new();
    while seen.len() < expected.len() {
        seen.push(watch.next().await.unwrap());
    }
    assert_eq!(as_map(&seen), expected);
}

/// Lets writers continue once all watchers have caught up.
struct Slowest {
    ahead: Arc<Semaphore>,
    seen: Mutex<Vec<usize>>,
}

impl Slowest {
    fn advance(&self, number: usize) {
        let mut seen = self.seen.lock().unwrap();
        // The third one sees only a part of the commits.
        let before = seen[0].min(seen[1]);
        seen[number] += 1;
        self.ahead.add_permits(seen[0].min(seen[1]) - before);
    }
}

fn some_transaction(runner: &mut TestRunner) -> Transaction {
    let key = (0..8_u8, 0..20_u8).prop_map(|(group, key)| format!("watched/{group}/{key}"));
    let value =
        prop_oneof![Just(None), proptest::collection::vec(any::<u8>(), 0..40).prop_map(Some)];
    let changes = proptest::collection::btree_map(key, value, 0..12);
    let changes = changes.new_tree(runner).unwrap().current();
    // Without a change it would have the same revision as another transaction.
    let transaction = Transaction::new().put("watched/always", "");
    changes.into_iter().fold(transaction, |transaction, (key, value)| match value {
        Some(value) => transaction.put(key, value),
        None => transaction.delete(key),
    })
}

type ChangesByKey = BTreeMap<Revision, BTreeMap<String, Option<Bytes>>>;

/// Without deletes of missing keys.
fn effective(commits: &BTreeMap<Revision, Vec<Change>>) -> BTreeMap<Revision, Vec<Change>> {
    let mut existing = BTreeSet::new();
    let effect = |changes: &Vec<Change>| -> Vec<Change> {
        let changed = changes.iter().filter(|change| match change.value() {
            Some(_) => {
                existing.insert(change.key().to_owned());
                true
            }
            None => existing.remove(change.key()),
        });
        changed.cloned().collect()
    };
    let mut effect = effect;
    commits.iter().map(|(revision, changes)| (*revision, effect(changes))).collect()
}

fn matching(
    commits: &BTreeMap<Revision, Vec<Change>>,
    prefix: &str,
    after: Revision,
) -> ChangesByKey {
    let later =
        commits.iter().filter(|(revision, _)| **revision > after).map(|(revision, changes)| {
            let matching = changes.iter().filter(|change| change.key().starts_with(prefix));
            (*revision, by_key(matching))
        });
    later.filter(|(_, changes)| !changes.is_empty()).collect()
}

fn as_map(seen: &[Commit]) -> ChangesByKey {
    assert!(seen.is_sorted_by(|before, after| before.revision < after.revision), "out of order");
    seen.iter().map(|commit| (commit.revision, by_key(commit.changes.iter()))).collect()
}

fn by_key<'a>(changes: impl Iterator<Item = &'a Change>) -> BTreeMap<String, Option<Bytes>> {
    changes.map(|change| (change.key().to_owned(), change.value().cloned())).collect()
}

pub async fn deliver_only_later_commits_under_the_prefix(store: &Store) {
    store.commit(Transaction::new().put("a/1", "before")).await.unwrap();
    let mut watch = store.watch("a/", None).await.unwrap();
    store.commit(Transaction::new().put("ab", "")).await.unwrap();
    store.commit(Transaction::new().delete("a/2")).await.unwrap();
    let both = Transaction::new().put("b", "").put("a/2", "x").delete("a/1").delete("a/3");
    let revision = store.commit(both).await.unwrap();
    let mut seen = watch.next().await.unwrap();
    seen.changes.sort_by(|one, other| one.key().cmp(other.key()));
    let changes = vec![
        Change::Delete { key: "a/1".to_owned() },
        Change::Put { key: "a/2".to_owned(), value: "x".into() },
    ];
    assert_eq!(seen, Commit { revision, changes });
    // A watch from the revision of a list misses nothing.
    let page = store.list("a/").await.unwrap();
    let mut watch = store.watch("a/", Some(page.revision)).await.unwrap();
    let next = store.commit(Transaction::new().put("a/2", "y")).await.unwrap();
    assert_eq!(watch.next().await.unwrap().revision, next);
    // All watches get all commits.
    let watches = join_all((0..50).map(|_| store.watch("a/", None))).await;
    let next = store.commit(Transaction::new().put("a/2", "z")).await.unwrap();
    for watch in watches {
        assert_eq!(watch.unwrap().next().await.unwrap().revision, next);
    }
}

/// The store may have been restored to an earlier state.
pub async fn from_a_future_revision_report_a_gap(store: &Store) {
    let now = store.commit(Transaction::new().put("a", "")).await.unwrap();
    let mut future = match store.watch("", Some(Revision(now.0 + 1_000_000_000))).await {
        Err(error) => return assert_eq!(error, Error::Gap),
        Ok(watch) => watch,
    };
    assert_eq!(future.next().await, Err(Error::Gap));
}

/// The queue of a watch is bounded. A reader lists again and continues.
pub async fn that_fall_behind_report_a_gap(store: &Store) {
    let mut slow = store.watch("", None).await.unwrap();
    let mut other = store.watch("b", None).await.unwrap();
    let mut seen = Vec::new();
    let mut written = 0_u8;
    let ended = loop {
        // Three writes for each read.
        for _ in 0..3 {
            let large = vec![written; 900_000];
            store.commit(Transaction::new().put("a", large)).await.unwrap();
            written += 1;
        }
        match slow.next().await {
            Ok(commit) => seen.push(commit.changes[0].value().unwrap()[0]),
            Err(error) => break error,
        }
        assert!(written < 200, "the watch never reported a gap");
    };
    assert_eq!(ended, Error::Gap);
    assert_eq!(slow.next().await, Err(Error::Gap));
    // Nothing was missing until then.
    let expected: Vec<_> = (0..u8::try_from(seen.len()).unwrap()).collect();
    assert_eq!(seen, expected);
    let page = store.list("").await.unwrap();
    assert_eq!(page.entries[0].value[0], written - 1);
    let mut restarted = store.watch("", Some(page.revision)).await.unwrap();
    let next = store.commit(Transaction::new().put("b", "")).await.unwrap();
    assert_eq!(restarted.next().await.unwrap().revision, next);
    // Other watches are not delayed.
    assert_eq!(other.next().await.unwrap().revision, next);
}
