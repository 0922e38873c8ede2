//! Members that are replaced, added and removed.

use std::fs;

use hyper::StatusCode;
use serde_json::json;

use crate::harness::TestGrid;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_a_lost_disk_is_replaced() {
    let grid = TestGrid::start().await;
    grid.create(&["a".to_owned()]).await;
    grid.kill(2);
    fs::remove_dir_all(grid.data_dir(2)).unwrap();
    assert_eq!(grid.add(0, "a").await, (StatusCode::OK, json!(1)));
    grid.spawn(2);
    grid.ready(2).await;
    assert_eq!(grid.count(2, "a").await, 1);
    // It has a vote and all data.
    grid.kill(0);
    assert_eq!(grid.add(1, "a").await, (StatusCode::OK, json!(2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_are_added_and_removed() {
    let grid = TestGrid::start().await;
    let ids: Vec<_> = (0..20).map(|it| format!("object-{it}")).collect();
    grid.create(&ids).await;
    grid.set_members(5);
    for index in [3, 4] {
        grid.spawn(index);
        grid.ready(index).await;
    }
    for id in &ids {
        assert_eq!(grid.add(4, id).await, (StatusCode::OK, json!(1)));
    }
    // Five members tolerate two failures.
    grid.kill(0);
    grid.kill(1);
    assert_eq!(grid.add(3, &ids[0]).await.0, StatusCode::OK);
    grid.spawn(0);
    grid.spawn(1);
    grid.ready(0).await;
    grid.ready(1).await;
    grid.set_members(3);
    for index in [4, 3] {
        grid.ended(index).await;
        grid.spawn(index);
        grid.until("the node is removed", async || {
            grid.state_of(index, index).await.as_deref() == Some("removed")
                && grid.state_of(0, index).await.is_none()
        })
        .await;
    }
    for id in &ids[1..] {
        assert_eq!(grid.add(2, id).await, (StatusCode::OK, json!(2)), "{id}");
    }
    // A node that was removed joins again with an empty disk.
    grid.set_members(4);
    grid.ready(3).await;
    assert_eq!(grid.count(3, &ids[1]).await, 2);
}
