//! Metrics of a node.

use hyper::StatusCode;

use crate::harness::TestGrid;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_objects_and_the_store_are_measured() {
    let grid = TestGrid::start().await;
    grid.balanced().await;
    let ids: Vec<_> = (0..9).map(|it| format!("object-{it}")).collect();
    grid.create(&ids).await;
    for id in &ids {
        assert_eq!(grid.add(0, id).await.0, StatusCode::OK);
    }
    assert_eq!(grid.send(0, "POST", "/objects/a/nothing", "").await.0, StatusCode::NOT_FOUND);
    let (status, text) = grid.send(0, "GET", "/metrics", "").await;
    assert_eq!(status, StatusCode::OK);
    let text = text.as_str().unwrap();
    let value = |name: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("{name}: {text}")).parse::<f64>().unwrap()
    };
    let is = |name: &str, expected: u32| {
        let (found, expected) = (value(name), f64::from(expected));
        assert!((found - expected).abs() < 0.5, "{name}: {found}");
    };
    is(r#"odgm_calls_total{method="add",outcome="ok"}"#, 9);
    is(r#"odgm_calls_total{method="PUT",outcome="ok"}"#, 9);
    is(r#"odgm_calls_total{method="unknown",outcome="rejected"}"#, 1);
    is(r#"odgm_objects{collection="Counter"}"#, 9);
    is("odgm_outbox_events_pending", 0);
    assert!(value("odgm_store_bytes") > 0.0 && value("odgm_store_quota_bytes") > 1e9);
    assert!(value(r#"odgm_forwards_total{outcome="answered"}"#) > 0.0, "{text}");
    assert!(value("odgm_owned_partitions") > 0.0);
}
