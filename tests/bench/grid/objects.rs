//! Objects as the grid stores them.

use std::ops::Range;

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use oprc_cp_storage::{Store, Transaction};
use serde_json::{Value, json};

pub(crate) const COLLECTION: &str = "Counter";
/// Objects of a transaction, and transactions at once, when a store is filled.
const BATCH: usize = 50;
const AT_ONCE: usize = 64;
/// Makes a state about as long as those of small objects.
const TEXT: &str =
    "a hundred characters that are in each object, and that its method returns as it has got them";

pub(crate) fn id(number: usize) -> String {
    format!("object-{number:07}")
}

pub(crate) fn key(id: &str) -> String {
    format!("o/{COLLECTION}/{id}")
}

pub(crate) fn state(count: u64) -> Value {
    json!({"count": count, "text": TEXT})
}

/// The value of an object that was changed so often.
pub(crate) fn record(state: &Value, changes: u64) -> Value {
    let time = 1_750_000_000_000_u64 + changes;
    let last = format!("{:016x}", fastrand::u64(..));
    json!({"state": state, "created": 1_750_000_000_000_u64, "changed": time, "last": last,
        "next_event": 0, "changes": changes})
}

/// Creates objects in a store that no node has opened, or that several may change.
pub(crate) async fn fill(store: &Store, numbers: Range<usize>) {
    let numbers: Vec<_> = numbers.collect();
    let commits = numbers.chunks(BATCH).map(|some| {
        let put = |transaction: Transaction, number: &usize| {
            transaction.put(key(&id(*number)), record(&state(0), 0).to_string())
        };
        store.commit(some.iter().fold(Transaction::new(), put))
    });
    let mut commits = stream::iter(commits).buffer_unordered(AT_ONCE);
    while let Some(done) = commits.next().await {
        done.unwrap();
    }
}

/// A backup of so many objects, in parts.
pub(crate) fn backup(count: usize) -> impl Stream<Item = Bytes> + Send + 'static {
    let first =
        json!({"backup": 1, "class": "counter", "collections": [COLLECTION], "revision": 1});
    let last = json!({"end": true, "records": count});
    let numbers = (0..count).step_by(BATCH);
    let lines = numbers.map(move |from| {
        let some = (from..count.min(from + BATCH)).map(|number| {
            format!("{}\n", json!({"key": key(&id(number)), "value": record(&state(0), 0)}))
        });
        some.collect()
    });
    let ends = |value: Value| [format!("{value}\n")].into_iter();
    stream::iter(ends(first).chain(lines).chain(ends(last)).map(Bytes::from))
}
