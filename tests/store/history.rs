//! Watches when etcd drops history, restarts, or loses its data.

use oprc_cp_storage::{Error, Store, Transaction};

use oprc_tests::etcd::Etcd;

use crate::space::admin;

async fn put(store: &Store, value: impl ToString) -> u64 {
    store.commit(Transaction::new().put("a", value.to_string())).await.unwrap().0
}

#[tokio::test]
async fn compacted_history_is_a_gap_and_newer_events_arrive() {
    let etcd = Etcd::start();
    let store = etcd.store("test").await;
    let first = put(&store, 1).await;
    for value in 2..10 {
        put(&store, value).await;
    }
    let page = store.list("").await.unwrap();
    admin(&etcd).compact(page.revision.0).await.unwrap();
    let mut old = store.watch("", Some(oprc_cp_storage::Revision(first))).await.unwrap();
    assert_eq!(old.next().await, Err(Error::Gap));
    let mut new = store.watch("", Some(page.revision)).await.unwrap();
    let next = put(&store, "new").await;
    assert_eq!(new.next().await.unwrap().revision.0, next);
}

#[tokio::test]
async fn a_watch_resumes_after_a_restart() {
    let etcd = Etcd::start();
    let store = etcd.store("test").await;
    let mut watch = store.watch("", None).await.unwrap();
    let mut revisions = Vec::new();
    for round in 0..3 {
        revisions.push(put(&store, round).await);
        // The event may not be delivered when the connection breaks.
        etcd.kill();
        etcd.restart();
        revisions.push(put_with_retries(&store, round).await);
    }
    for revision in revisions {
        assert_eq!(watch.next().await.unwrap().revision.0, revision);
    }
}

/// A broken connection may leave the outcome of a write unknown.
async fn put_with_retries(store: &Store, value: u32) -> u64 {
    loop {
        let before = store.list("").await.unwrap().revision;
        match store.commit(Transaction::new().put("a", value.to_string())).await {
            Ok(revision) => return revision.0,
            Err(Error::UnknownOutcome { .. }) => {
                assert_eq!(
                    store.list("").await.unwrap().revision,
                    before,
                    "the failed write was stored"
                );
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn lost_data_is_a_gap() {
    let etcd = Etcd::start();
    let store = etcd.store("test").await;
    for value in 0..5 {
        put(&store, value).await;
    }
    let mut watch = store.watch("", None).await.unwrap();
    etcd.kill();
    etcd.delete_data();
    etcd.restart();
    assert_eq!(watch.next().await, Err(Error::Gap));
    assert_eq!(store.list("").await.unwrap().entries, []);
}
