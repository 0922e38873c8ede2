//! Nodes that fail: their partitions are taken over, and no call is lost or made twice.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use hyper::StatusCode;
use serde_json::json;
use tokio::task::JoinSet;
use tonic::Code;

use crate::{
    harness::{Answer, TestGrid},
    poll::Poll,
};

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|it| format!("object-{it}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_node_accepts_writes() {
    let grid = TestGrid::start().await;
    let ids = ids(12);
    grid.create(&ids).await;
    for (round, id) in ids.iter().enumerate() {
        for index in 0..3 {
            let (status, body) = grid.send(index, "POST", &format!("/objects/{id}/add"), "").await;
            assert_eq!((status, &body), (StatusCode::OK, &json!(index + 1)), "{round}");
        }
        for index in 0..3 {
            assert_eq!(grid.count(index, id).await, 3);
        }
        let path = format!("/objects/{id}");
        let (status, body) = grid.send(round % 3, "PATCH", &path, r#"{"note": "x"}"#).await;
        assert_eq!((status, &body["state"]["note"]), (StatusCode::OK, &json!("x")));
        let (status, _) = grid.send((round + 1) % 3, "DELETE", &path, "").await;
        assert_eq!(status, StatusCode::NO_CONTENT);
        assert_eq!(grid.send(2, "GET", &path, "").await.0, StatusCode::NOT_FOUND);
    }
    let (status, body) = grid.send(1, "POST", "/objects/none/add", "").await;
    assert_eq!((status, &body["reason"]), (StatusCode::NOT_FOUND, &json!("NOT_FOUND")));
    let info = grid.cluster_info(1).await.unwrap();
    assert_eq!(info.nodes.len(), 3);
    assert!(info.leader_node.starts_with("node-00"), "{info:?}");
    assert!(info.store_quota_bytes > 0 && !info.low_on_space, "{info:?}");
    grid.balanced().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_owner_is_replaced_at_once() {
    let grid = TestGrid::start().await;
    let ids = ids(24);
    grid.create(&ids).await;
    grid.kill(0);
    for id in &ids {
        let started = Instant::now();
        let (status, body) = grid.add(1, id).await;
        assert_eq!((status, body), (StatusCode::OK, json!(1)), "{}", grid.log(1));
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }
    grid.spawn(0);
    grid.ready(0).await;
    for id in &ids {
        assert_eq!(grid.add(0, id).await, (StatusCode::OK, json!(2)));
    }
}

/// Calls a method of all objects with the same keys until the outcomes are known.
fn call_all(
    grid: &Arc<TestGrid>,
    node: usize,
    method: &'static str,
    calls: &[(String, String)],
) -> JoinSet<(String, Answer)> {
    let mut tasks = JoinSet::new();
    for (id, key) in calls {
        let (grid, id, key) = (grid.clone(), id.clone(), key.clone());
        tasks.spawn(async move {
            let answer = grid.call(node, &id, method, &key).await;
            (id, answer)
        });
    }
    tasks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_owner_is_replaced_and_cannot_commit_late() {
    let grid = TestGrid::start().await;
    let ids = ids(12);
    grid.create(&ids).await;
    let calls: Vec<_> = ids.iter().map(|id| (id.clone(), grid.new_key())).collect();
    let late = call_all(&grid, 0, "gated", &calls);
    grid.function.waiting(ids.len()).await;
    grid.freeze(0);
    grid.function.open_gate();
    let started = Instant::now();
    let others: Vec<_> = ids.iter().map(|id| (id.clone(), grid.new_key())).collect();
    for (id, (status, body)) in call_all(&grid, 1, "add", &others).join_all().await {
        assert_eq!(status, StatusCode::OK, "{id}: {body}");
    }
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    grid.thaw(0);
    for (id, (status, body)) in late.join_all().await {
        assert_eq!(status, StatusCode::OK, "{id}: {body}");
    }
    for id in &ids {
        assert_eq!(grid.count(2, id).await, 2, "{id}");
    }
}

/// The new owner executes the calls again and changes nothing, so that the versions of the objects stay
/// the same: only the fence keeps the former owner from storing what its function returned.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_owner_cannot_commit_calls_that_were_refused_meanwhile() {
    let grid = TestGrid::start().await;
    grid.balanced().await;
    let ids = ids(12);
    grid.create(&ids).await;
    let calls: Vec<_> = ids.iter().map(|id| (id.clone(), grid.new_key())).collect();
    let late = call_all(&grid, 0, "once", &calls);
    grid.function.waiting(ids.len()).await;
    grid.freeze(0);
    grid.function.open_gate();
    let answers: BTreeMap<_, _> =
        call_all(&grid, 1, "once", &calls).join_all().await.into_iter().collect();
    let refused = answers.values().filter(|it| it.1["reason"] == "REFUSED_BY_FUNCTION").count();
    assert!((1..ids.len()).contains(&refused), "{answers:?}");
    grid.thaw(0);
    for (id, answer) in late.join_all().await {
        assert_eq!(answer.0, answers[&id].0, "{id}: {answer:?}");
    }
    for (id, (status, body)) in &answers {
        let is_made = *status == StatusCode::OK;
        assert!(is_made || *status == StatusCode::UNPROCESSABLE_ENTITY, "{id}: {status} {body}");
        assert_eq!(grid.count(2, id).await, i64::from(is_made), "{id}");
    }
}

/// The deadline of a client travels with the call to the owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_deadline_has_passed_changes_nothing() {
    let grid = TestGrid::start().await;
    grid.balanced().await;
    let ids = ids(12);
    grid.create(&ids).await;
    let mut calls = JoinSet::new();
    for id in ids.clone() {
        let grid = grid.clone();
        calls.spawn(
            async move { grid.invoke_within(0, &id, "gated", Duration::from_secs(1)).await },
        );
    }
    grid.function.waiting(ids.len()).await;
    for result in calls.join_all().await {
        let code = result.unwrap_err().code();
        assert!(matches!(code, Code::DeadlineExceeded | Code::Cancelled), "{code}");
    }
    // These wait until the owners have given up the calls.
    for id in &ids {
        assert_eq!(grid.add(1, id).await, (StatusCode::OK, json!(1)), "{id}");
    }
    grid.function.open_gate();
    for id in &ids {
        assert_eq!(grid.add(2, id).await, (StatusCode::OK, json!(2)), "{id}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_are_refused_without_a_majority() {
    let grid = TestGrid::start().await;
    grid.create(&ids(1)).await;
    grid.kill(1);
    grid.kill(2);
    // A call that has begun before the loss was noticed may have an unknown outcome.
    grid.until("writes are refused", async || {
        let (status, body) = grid.send(0, "PUT", "/objects/object-0", "{}").await;
        status == StatusCode::SERVICE_UNAVAILABLE && body["reason"] == "UNAVAILABLE"
    })
    .await;
    let started = Instant::now();
    let (status, body) = grid.send(0, "POST", "/objects/object-0/add", "").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
    assert!(body["detail"].as_str().unwrap().contains("no majority"), "{body}");
    // Long before the call would time out.
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    assert_eq!(
        grid.send(0, "GET", "/objects/object-0", "").await.0,
        StatusCode::SERVICE_UNAVAILABLE
    );
    let (status, body) = grid.send(0, "GET", "/objects/object-0?stale=true", "").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    grid.spawn(1);
    grid.spawn(2);
    grid.until("writes are accepted again", async || {
        grid.send(0, "PUT", "/objects/object-0", r#"{"count": 7}"#).await.0 == StatusCode::OK
    })
    .await;
    grid.ready(2).await;
    assert_eq!(grid.count(2, "object-0").await, 7);
}

/// Clients that add with idempotency keys, and repeat calls until they are acknowledged.
pub(crate) struct Clients {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<Vec<String>>,
}

impl Clients {
    /// Each client calls one of the nodes.
    pub(crate) fn start(
        grid: &Arc<TestGrid>,
        nodes: &[usize],
        ids: &[String],
        may_fail: bool,
    ) -> Self {
        let (stop, mut tasks) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        for (client, node) in nodes.iter().copied().enumerate() {
            let (grid, ids, stop) = (grid.clone(), ids.to_vec(), stop.clone());
            tasks.spawn(async move {
                let mut added = Vec::new();
                for round in client.. {
                    if stop.load(Ordering::Relaxed) {
                        return added;
                    }
                    let id = &ids[round % ids.len()];
                    let (key, path) = (grid.new_key(), format!("/objects/{id}/add"));
                    let poll = Poll::new();
                    loop {
                        let answer = grid.try_send(node, "POST", &path, "", Some(&key)).await;
                        match answer {
                            Some((StatusCode::OK, _)) => break,
                            other => assert!(may_fail, "{other:?}: {}", grid.log(node)),
                        }
                        poll.next(|| format!("{path}: {}", grid.log(node))).await;
                    }
                    added.push(id.clone());
                }
                added
            });
        }
        Self { stop, tasks }
    }

    /// The objects that were added to, once for each acknowledged call.
    pub(crate) async fn stop(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks.join_all().await.concat()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_acknowledged_increment_counts_once_while_nodes_are_killed() {
    let grid = TestGrid::start().await;
    let ids = ids(6);
    grid.create(&ids).await;
    let clients = Clients::start(&grid, &[0, 1, 2, 0, 1, 2], &ids, true);
    for index in [0, 1, 2] {
        grid.kill(index);
        grid.spawn(index);
        grid.ready(index).await;
    }
    let added = clients.stop().await;
    assert!(added.len() > 20, "{}", added.len());
    for id in &ids {
        let expected = added.iter().filter(|it| *it == id).count();
        assert_eq!(grid.count(1, id).await, i64::try_from(expected).unwrap(), "{id}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stops_hands_over_without_a_failed_call() {
    let grid = TestGrid::start().await;
    let ids = ids(12);
    grid.create(&ids).await;
    let clients = Clients::start(&grid, &[1, 2, 1, 2], &ids, false);
    grid.terminate(0).await;
    grid.spawn(0);
    grid.ready(0).await;
    let added = clients.stop().await;
    assert!(!added.is_empty());
    for id in &ids {
        let expected = added.iter().filter(|it| *it == id).count();
        assert_eq!(grid.count(0, id).await, i64::try_from(expected).unwrap(), "{id}");
    }
}
