//! A store whose quota is used up, or nearly.

use std::sync::Arc;

use hyper::StatusCode;
use oprc_cp_storage::{EtcdOptions, Store, Transaction};
use serde_json::{Value, json};

use crate::{
    function::DELETED,
    harness::{Answer, TestGrid},
};

const QUOTA: usize = 32 << 20;
const STATE_BYTES: usize = 100_000;
/// Objects that use most of the quota.
const MANY: usize = QUOTA / 100 * 75 / STATE_BYTES;

async fn start() -> Arc<TestGrid> {
    TestGrid::start_with_quota(u64::try_from(QUOTA).unwrap()).await
}

fn path(object: usize) -> String {
    format!("/objects/object-{object:03}")
}

fn state() -> String {
    json!({"text": "x".repeat(STATE_BYTES)}).to_string()
}

/// A metric of a node.
async fn metric(grid: &TestGrid, index: usize, name: &str) -> f64 {
    let (_, text) = grid.send(index, "GET", "/metrics", "").await;
    let name = format!("{name} ");
    let found = text.as_str().unwrap().lines().find_map(|it| it.strip_prefix(&name)).unwrap();
    found.trim().parse().unwrap()
}

fn is_refused(answer: &Answer, why: &str) -> bool {
    let detail = answer.1["detail"].as_str().unwrap_or_default();
    answer.0 == StatusCode::SERVICE_UNAVAILABLE
        && answer.1["reason"] == "UNAVAILABLE"
        && detail.contains(why)
}

async fn put(grid: &TestGrid, object: usize) -> (StatusCode, Value) {
    grid.send(object % 3, "PUT", &path(object), &state()).await
}

/// Waits until all nodes refuse writes for this reason. Reads succeed.
async fn refused(grid: &TestGrid, why: &str) {
    for index in 0..3 {
        grid.until("all nodes refuse writes", async || {
            is_refused(&grid.send(index, "POST", &format!("{}/add", path(0)), "").await, why)
        })
        .await;
        assert_eq!(grid.send(index, "GET", &path(1), "").await.0, StatusCode::OK);
    }
}

async fn accepted_again(grid: &TestGrid) {
    grid.until("writes are accepted again", async || put(grid, 0).await.0 == StatusCode::OK).await;
    grid.until("space is no longer low", async || {
        grid.cluster_info(1).await.is_some_and(|it| !it.low_on_space)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_of_callers_leave_a_reserve_for_deletions_events_and_takeovers() {
    let grid = start().await;
    grid.function.open_gate();
    let logged = "/collections/Logged/objects/logged";
    assert_eq!(grid.send(0, "PUT", logged, r#"{"count": 0}"#).await.0, StatusCode::OK);
    assert!(!grid.cluster_info(0).await.unwrap().low_on_space);
    for object in 0..MANY {
        let (status, body) = put(&grid, object).await;
        assert_eq!(status, StatusCode::OK, "{body}");
    }
    for index in 0..3 {
        grid.until("the node reports that space is low", async || {
            grid.cluster_info(index).await.is_some_and(|it| it.low_on_space)
        })
        .await;
        let used = metric(&grid, index, "odgm_store_bytes_in_use").await;
        let quota = metric(&grid, index, "odgm_store_quota_bytes").await;
        assert!(used > quota * 0.7 && used < quota, "{used} of {quota}");
    }
    assert_eq!(put(&grid, MANY).await.0, StatusCode::OK, "space is low, but left");
    let (mut next, reserve) = (MANY, "less than 5 %");
    grid.until("writes are refused", async || {
        next += 1;
        is_refused(&put(&grid, next).await, reserve)
    })
    .await;
    refused(&grid, reserve).await;
    // Another node executes the deletions of one that fails, and delivers their events.
    grid.kill(2);
    for object in [0, 1, 2, 3, 4, 5] {
        let (status, body) = grid.send(object % 2, "DELETE", &path(object), "").await;
        assert_eq!(status, StatusCode::NO_CONTENT, "{body}");
    }
    assert_eq!(grid.send(1, "DELETE", logged, "").await.0, StatusCode::NO_CONTENT);
    grid.until("the event is delivered", async || {
        grid.function.noted().contains(&("logged".to_owned(), DELETED))
    })
    .await;
    let bytes = metric(&grid, 1, "odgm_store_bytes").await;
    assert!(bytes < 0.99 * metric(&grid, 1, "odgm_store_quota_bytes").await, "{bytes}");
    grid.spawn(2);
    grid.ready(2).await;
    for object in 6..MANY / 2 {
        let (status, body) = grid.send(object % 3, "DELETE", &path(object), "").await;
        assert_eq!(status, StatusCode::NO_CONTENT, "{body}");
    }
    accepted_again(&grid).await;
    for object in [0, MANY / 2, MANY] {
        assert_eq!(grid.send(1, "GET", &path(object), "").await.0, StatusCode::OK, "{object}");
    }
}

/// Writes to etcd until it refuses them, and returns how many keys there are.
async fn fill(store: &Store) -> usize {
    let value = vec![b'x'; STATE_BYTES];
    for key in 0..QUOTA / STATE_BYTES * 2 {
        let transaction = Transaction::new().put(format!("k/{key}"), value.clone());
        if store.commit(transaction).await.is_err() {
            return key;
        }
    }
    panic!("etcd ignores its quota");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_store_accepts_writes_after_deletions() {
    let grid = start().await;
    for object in 0..3 {
        assert_eq!(put(&grid, object).await.0, StatusCode::OK);
    }
    let options = EtcdOptions { root: "other".to_owned(), ..EtcdOptions::new([grid.etcd_url(0)]) };
    let store = Store::etcd(options).await.unwrap();
    let keys = fill(&store).await;
    refused(&grid, "the quota of the store is used up").await;
    let (status, body) = grid.send(1, "DELETE", &path(2), "").await;
    assert_eq!(status, StatusCode::NO_CONTENT, "{body}");
    for key in 0..=keys {
        store.commit(Transaction::new().delete(format!("k/{key}"))).await.unwrap();
    }
    accepted_again(&grid).await;
    assert_eq!(grid.send(1, "GET", &path(1), "").await.0, StatusCode::OK);
}
