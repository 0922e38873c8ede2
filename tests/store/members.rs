//! Several endpoints, one of which suffices.

use std::time::{Duration, Instant};

use oprc_cp_storage::{Error, EtcdOptions, Store, Transaction};

use oprc_tests::etcd::{Etcd, free_port};

/// Tolerance for a busy machine.
const SLACK: Duration = Duration::from_secs(30);

#[tokio::test]
async fn skips_unreachable_endpoints() {
    let etcd = Etcd::start();
    let dead = format!("http://127.0.0.1:{}", free_port());
    let endpoints = vec![dead.clone(), etcd.endpoint(), dead];
    let store = Store::etcd(EtcdOptions { endpoints, ..etcd.options("test") }).await.unwrap();
    for round in 0..20 {
        store.commit(Transaction::new().put("a", round.to_string())).await.unwrap();
        assert_eq!(store.get("a").await.unwrap().unwrap().value, round.to_string());
        if round % 5 == 0 {
            etcd.kill();
            etcd.restart();
            // Reads are retried on a broken connection, writes aren't.
            store.get("a").await.unwrap();
        }
    }
}

#[tokio::test]
async fn every_call_ends_by_its_deadline() {
    let etcd = Etcd::start();
    etcd.wait_until_ready().await;
    let deadline = Duration::from_secs(5);
    let store = Store::etcd(EtcdOptions { deadline, ..etcd.options("test") }).await.unwrap();
    let before = store.commit(Transaction::new().put("a", "")).await.unwrap();
    etcd.freeze();
    let started = Instant::now();
    let (read, written) =
        tokio::join!(store.get("a"), store.commit(Transaction::new().put("a", "1")));
    assert!(matches!(read, Err(Error::Unavailable { .. })), "{read:?}");
    assert!(matches!(written, Err(Error::UnknownOutcome { .. })), "{written:?}");
    let (watch, lease) =
        tokio::join!(store.watch("", Some(before)), store.acquire_lease("a", "we"));
    assert!(matches!(watch.err(), Some(Error::Unavailable { .. })));
    assert!(lease.unwrap_err().is_retryable());
    assert!(started.elapsed() < 2 * deadline + SLACK, "{:?}", started.elapsed());
    etcd.thaw();
    // The outcome of the write is known by now or soon.
    let entry = store.get("a").await.unwrap().unwrap();
    assert!(entry.value.is_empty() || entry.value == "1");
    let check = oprc_cp_storage::Check::Exists;
    store.commit(Transaction::new().check("a", check).put("a", "2")).await.unwrap();

    etcd.kill();
    // Without a listener nothing was changed, which is known except for the former connection and
    // an attempt that the deadline cancels.
    let mut known = false;
    for _ in 0..5 {
        let started = Instant::now();
        let error = store.commit(Transaction::new().put("a", "3")).await.unwrap_err();
        assert!(started.elapsed() < deadline + SLACK, "{:?}", started.elapsed());
        assert!(
            matches!(error, Error::Unavailable { .. } | Error::UnknownOutcome { .. }),
            "{error}"
        );
        known = error.is_retryable();
        if known {
            break;
        }
    }
    assert!(known);
}
