//! Events of nodes that fail are delivered by others.

use hyper::StatusCode;

use crate::harness::TestGrid;

const OBJECTS: usize = 12;
const CHANGES: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_a_killed_node_are_delivered_by_others_in_order() {
    let grid = TestGrid::start().await;
    let path = |object: usize| format!("/collections/Logged/objects/object-{object}");
    for object in 0..OBJECTS {
        let (status, body) = grid.send(0, "PUT", &path(object), r#"{"count": 0}"#).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        for change in 1..CHANGES {
            let (path, node) = (format!("{}/add", path(object)), change % 3);
            assert_eq!(grid.send(node, "POST", &path, "").await.0, StatusCode::OK);
        }
    }
    // No event was delivered yet.
    grid.kill(0);
    grid.function.open_gate();
    let pending = async || {
        let (_, text) = grid.send(1, "GET", "/metrics", "").await;
        let line = text.as_str().and_then(|it| {
            it.lines().find_map(|line| line.strip_prefix("odgm_outbox_events_pending "))
        });
        line.and_then(|it| it.parse::<usize>().ok())
    };
    assert!(pending().await.is_some());
    grid.until("all events are delivered", async || pending().await == Some(0)).await;
    let noted = grid.function.noted();
    for object in 0..OBJECTS {
        let id = format!("object-{object}");
        let counts: Vec<_> = noted.iter().filter(|it| it.0 == id).map(|it| it.1).collect();
        assert!(counts.len() >= CHANGES, "{id}: {counts:?}");
        assert!(counts.is_sorted(), "{id}: {counts:?}");
    }
}
