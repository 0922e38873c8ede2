//! A store that is full accepts writes again after objects were deleted.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::harness::TestGrid;

/// The smallest one that a node accepts.
const QUOTA: u64 = 16 << 20;
const STATE_BYTES: usize = 50_000;

fn path(object: usize) -> String {
    format!("/objects/object-{object:03}")
}

/// A metric of a node.
async fn metric(grid: &TestGrid, index: usize, name: &str) -> f64 {
    let (_, text) = grid.send(index, "GET", "/metrics", "").await;
    let found = text.as_str().unwrap().lines().find_map(|it| it.strip_prefix(name)).unwrap();
    found.trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_store_accepts_writes_after_deletions() {
    let grid = TestGrid::start_with_quota(QUOTA).await;
    let state = json!({"text": "x".repeat(STATE_BYTES)}).to_string();
    let put = async |object: usize| grid.send(object % 3, "PUT", &path(object), &state).await;
    // Most of the quota.
    let many = usize::try_from(QUOTA).unwrap() * 75 / 100 / STATE_BYTES;
    assert!(!grid.cluster_info(0).await.unwrap().low_on_space);
    for object in 0..many {
        let (status, body) = put(object).await;
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
    assert_eq!(put(many).await.0, StatusCode::OK, "space is low, but left");
    let is_full = |answer: &(StatusCode, Value)| {
        let detail = answer.1["detail"].as_str().unwrap_or_default();
        answer.0 == StatusCode::SERVICE_UNAVAILABLE && detail.contains("quota")
    };
    let mut next = many;
    grid.until("writes are refused", async || {
        next += 1;
        is_full(&put(next).await)
    })
    .await;
    for index in 0..3 {
        grid.until("all nodes refuse writes", async || {
            is_full(&grid.send(index, "POST", &format!("{}/add", path(0)), "").await)
        })
        .await;
        assert_eq!(grid.send(index, "GET", &path(1), "").await.0, StatusCode::OK);
    }
    for object in 0..many / 2 {
        let (status, body) = grid.send(object % 3, "DELETE", &path(object), "").await;
        assert_eq!(status, StatusCode::NO_CONTENT, "{body}");
    }
    grid.until("writes are accepted again", async || put(0).await.0 == StatusCode::OK).await;
    grid.until("space is no longer low", async || {
        grid.cluster_info(1).await.is_some_and(|it| !it.low_on_space)
    })
    .await;
    for object in [0, many / 2, many] {
        assert_eq!(grid.send(1, "GET", &path(object), "").await.0, StatusCode::OK, "{object}");
    }
}
