//! Watches tell everything once and in order, or say that they can't.

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

/// So many changes are made.
const CHANGES: usize = 10_000;
const WRITERS: usize = 8;

/// Random transactions of several writers, watched from several revisions, some of them long past
/// when the watch begins.
pub async fn tell_everything_once_and_in_order(store: &Store) {
    let begin = store.commit(Transaction::new().put("watched/first", "")).await.unwrap();
    let watchers: Vec<_> = [("", begin), ("watched/", begin), ("watched/3", begin)]
        .into_iter()
        .map(|(prefix, after)| (prefix.to_owned(), after))
        .collect();
    let made: Arc<Mutex<BTreeMap<Revision, Vec<Change>>>> = Arc::default();
    let left = Arc::new(AtomicUsize::new(CHANGES));
    // A watcher may be so far behind: writers must not outrun it, or it would begin anew.
    let ahead = Arc::new(Semaphore::new(1000));
    let writers = (0..WRITERS).map(|_| {
        let (store, made, left, ahead) = (store.clone(), made.clone(), left.clone(), ahead.clone());
        tokio::spawn(async move {
            let mut runner = TestRunner::default();
            while left.load(Ordering::Relaxed) > 0 {
                ahead.acquire().await.unwrap().forget();
                let transaction = some_transaction(&mut runner);
                let changes = transaction.changes.clone();
                let count = changes.len();
                let revision = store.commit(transaction).await.unwrap();
                let before = made.lock().unwrap().insert(revision, changes);
                assert!(before.is_none(), "two transactions made {revision}");
                let enough = |left: usize| Some(left.saturating_sub(count));
                let _ = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enough);
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let slowest = Arc::new(Slowest { ahead, told: Mutex::new(vec![0; watchers.len()]) });
    let readers = watchers.into_iter().enumerate().map(|(number, (prefix, after))| {
        let (store, slowest) = (store.clone(), slowest.clone());
        tokio::spawn(async move {
            let mut watch = store.watch(&prefix, Some(after)).await.unwrap();
            let mut told = Vec::new();
            loop {
                let commit = watch.next().await.unwrap();
                let last = commit.changes.iter().any(|change| change.key() == "watched/3/last");
                told.push(commit);
                if last {
                    return (prefix, after, told);
                }
                // Those that see only a part can't tell how far they are.
                if prefix != "watched/3" {
                    slowest.told(number);
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
    made.lock().unwrap().insert(revision, changes);
    let made = effective(&made.lock().unwrap());
    assert!(made.values().map(Vec::len).sum::<usize>() > CHANGES / 2);
    for reader in readers {
        let (prefix, after, told) = reader.await.unwrap();
        assert_eq!(told_as_map(&told), concerning(&made, &prefix, after), "{prefix:?}");
    }
    // Once more from the middle, when all is past: everything, or a gap right away.
    let middle = *made.keys().nth(made.len() / 2).unwrap();
    let mut watch = match store.watch("", Some(middle)).await {
        Err(Error::Gap) => return,
        watch => watch.unwrap(),
    };
    let wanted = concerning(&made, "", middle);
    let mut told = Vec::new();
    while told.len() < wanted.len() {
        told.push(watch.next().await.unwrap());
    }
    assert_eq!(told_as_map(&told), wanted);
}

/// Lets writers go on when all watchers have followed.
struct Slowest {
    ahead: Arc<Semaphore>,
    told: Mutex<Vec<usize>>,
}

impl Slowest {
    fn told(&self, number: usize) {
        let mut told = self.told.lock().unwrap();
        // The third one sees only a part.
        let before = told[0].min(told[1]);
        told[number] += 1;
        self.ahead.add_permits(told[0].min(told[1]) - before);
    }
}

fn some_transaction(runner: &mut TestRunner) -> Transaction {
    let key = (0..8_u8, 0..20_u8).prop_map(|(group, key)| format!("watched/{group}/{key}"));
    let value =
        prop_oneof![Just(None), proptest::collection::vec(any::<u8>(), 0..40).prop_map(Some)];
    let changes = proptest::collection::btree_map(key, value, 0..12);
    let changes = changes.new_tree(runner).unwrap().current();
    // One that changes nothing would have the revision of another one.
    let transaction = Transaction::new().put("watched/always", "");
    changes.into_iter().fold(transaction, |transaction, (key, value)| match value {
        Some(value) => transaction.put(key, value),
        None => transaction.delete(key),
    })
}

type Made = BTreeMap<Revision, BTreeMap<String, Option<Bytes>>>;

/// Without the deletes of what wasn't there.
fn effective(made: &BTreeMap<Revision, Vec<Change>>) -> BTreeMap<Revision, Vec<Change>> {
    let mut there = BTreeSet::new();
    let effect = |changes: &Vec<Change>| -> Vec<Change> {
        let changed = changes.iter().filter(|change| match change.value() {
            Some(_) => {
                there.insert(change.key().to_owned());
                true
            }
            None => there.remove(change.key()),
        });
        changed.cloned().collect()
    };
    let mut effect = effect;
    made.iter().map(|(revision, changes)| (*revision, effect(changes))).collect()
}

fn concerning(made: &BTreeMap<Revision, Vec<Change>>, prefix: &str, after: Revision) -> Made {
    let told = made.iter().filter(|(revision, _)| **revision > after).map(|(revision, changes)| {
        let concern = changes.iter().filter(|change| change.key().starts_with(prefix));
        (*revision, by_key(concern))
    });
    told.filter(|(_, changes)| !changes.is_empty()).collect()
}

fn told_as_map(told: &[Commit]) -> Made {
    assert!(told.is_sorted_by(|before, after| before.revision < after.revision), "out of order");
    told.iter().map(|commit| (commit.revision, by_key(commit.changes.iter()))).collect()
}

fn by_key<'a>(changes: impl Iterator<Item = &'a Change>) -> BTreeMap<String, Option<Bytes>> {
    changes.map(|change| (change.key().to_owned(), change.value().cloned())).collect()
}

/// Not what was before, nor what has another prefix.
pub async fn tell_only_what_comes_after_and_what_concerns_them(store: &Store) {
    store.commit(Transaction::new().put("a/1", "before")).await.unwrap();
    let mut watch = store.watch("a/", None).await.unwrap();
    store.commit(Transaction::new().put("ab", "")).await.unwrap();
    store.commit(Transaction::new().delete("a/2")).await.unwrap();
    let both = Transaction::new().put("b", "").put("a/2", "x").delete("a/1").delete("a/3");
    let revision = store.commit(both).await.unwrap();
    let mut told = watch.next().await.unwrap();
    told.changes.sort_by(|one, other| one.key().cmp(other.key()));
    let changes = vec![
        Change::Delete { key: "a/1".to_owned() },
        Change::Put { key: "a/2".to_owned(), value: "x".into() },
    ];
    assert_eq!(told, Commit { revision, changes });
    // From what a list says on, nothing is missing.
    let page = store.list("a/").await.unwrap();
    let mut watch = store.watch("a/", Some(page.revision)).await.unwrap();
    let next = store.commit(Transaction::new().put("a/2", "y")).await.unwrap();
    assert_eq!(watch.next().await.unwrap().revision, next);
    // Many at once each get all.
    let watches = join_all((0..50).map(|_| store.watch("a/", None))).await;
    let next = store.commit(Transaction::new().put("a/2", "z")).await.unwrap();
    for watch in watches {
        assert_eq!(watch.unwrap().next().await.unwrap().revision, next);
    }
}

/// A store that was put back to an earlier state knows nothing of what its reader knows.
pub async fn of_a_future_have_a_gap(store: &Store) {
    let now = store.commit(Transaction::new().put("a", "")).await.unwrap();
    let mut future = match store.watch("", Some(Revision(now.0 + 1_000_000_000))).await {
        Err(error) => return assert_eq!(error, Error::Gap),
        Ok(watch) => watch,
    };
    assert_eq!(future.next().await, Err(Error::Gap));
}

/// They aren't kept for without bounds. A reader then begins anew, and goes on.
pub async fn that_are_too_slow_have_a_gap(store: &Store) {
    let mut slow = store.watch("", None).await.unwrap();
    let mut other = store.watch("b", None).await.unwrap();
    let mut told = Vec::new();
    let mut written = 0_u8;
    let ended = loop {
        // Three for each that is taken.
        for _ in 0..3 {
            let large = vec![written; 900_000];
            store.commit(Transaction::new().put("a", large)).await.unwrap();
            written += 1;
        }
        match slow.next().await {
            Ok(commit) => told.push(commit.changes[0].value().unwrap()[0]),
            Err(error) => break error,
        }
        assert!(written < 200, "a watcher is never too slow");
    };
    assert_eq!(ended, Error::Gap);
    assert_eq!(slow.next().await, Err(Error::Gap));
    // What it was told until then had no hole.
    let wanted: Vec<_> = (0..u8::try_from(told.len()).unwrap()).collect();
    assert_eq!(told, wanted);
    let page = store.list("").await.unwrap();
    assert_eq!(page.entries[0].value[0], written - 1);
    let mut anew = store.watch("", Some(page.revision)).await.unwrap();
    let next = store.commit(Transaction::new().put("b", "")).await.unwrap();
    assert_eq!(anew.next().await.unwrap().revision, next);
    // Nor did it hold up another one.
    assert_eq!(other.next().await.unwrap().revision, next);
}
