//! Macros whose owner fails are finished by the next owner, each step once.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::json;
use tokio::task::JoinSet;

use crate::harness::TestGrid;

/// Begins runs on all objects by way of the second node, and waits until all are in their second step.
async fn begin_runs(grid: &Arc<TestGrid>, ids: &[String]) -> JoinSet<()> {
    grid.balanced().await;
    grid.create(ids).await;
    let mut callers = JoinSet::new();
    for id in ids {
        let (grid, id, key) = (grid.clone(), id.clone(), grid.new_key());
        callers.spawn(async move {
            let answer = grid.call(1, &id, "walk", &key).await;
            assert_eq!(answer, (StatusCode::OK, json!(3)), "{id}");
        });
    }
    grid.function.waiting(ids.len()).await;
    callers
}

async fn assert_finished_once(grid: &TestGrid, ids: &[String]) {
    for id in ids {
        assert_eq!(grid.count(2, id).await, 3, "{id}");
    }
}

fn ids() -> Vec<String> {
    (0..12).map(|it| format!("object-{it}")).collect()
}

async fn kill_owner() {
    let (grid, ids) = (TestGrid::start().await, ids());
    let callers = begin_runs(&grid, &ids).await;
    grid.kill(0);
    // The next owner executes an interrupted step again.
    grid.function.waiting(ids.len() + 1).await;
    grid.function.open_gate();
    callers.join_all().await;
    assert_finished_once(&grid, &ids).await;
}

/// The frozen owner continues after another node has finished its runs.
async fn freeze_owner() {
    let (grid, ids) = (TestGrid::start().await, ids());
    let callers = begin_runs(&grid, &ids).await;
    grid.freeze(0);
    grid.function.waiting(ids.len() + 1).await;
    grid.function.open_gate();
    callers.join_all().await;
    grid.thaw(0);
    grid.ready(0).await;
    grid.until("the former owner has given up its runs", async || {
        grid.backup(0).await.iter().all(|it| !it["key"].as_str().unwrap_or("").starts_with("r/"))
    })
    .await;
    assert_finished_once(&grid, &ids).await;
    for id in &ids {
        assert_eq!(grid.add(0, id).await, (StatusCode::OK, json!(4)), "{id}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_step_of_a_macro_is_stored_once_although_its_owner_is_killed_or_frozen() {
    tokio::join!(kill_owner(), freeze_owner());
}
