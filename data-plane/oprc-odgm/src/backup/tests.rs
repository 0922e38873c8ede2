use axum::{Json, body::to_bytes, http::Request};
use oprc_cp_storage::{RedbOptions, Store};
use serde_json::json;
use tokio::net::TcpListener;
use tower::ServiceExt as _;

use super::*;
use crate::{
    Expected, Invocation, ObjectId,
    class::{Access, Class},
};

fn class(collections: &[&str]) -> Class {
    let collections = collections.iter().map(|it| (*it).to_owned()).collect();
    let triggers = json!({"name": "Cart", "methods": {"t": {"url": "http://127.0.0.1:1"}},
        "triggers": [{"method": "t", "async": true}]});
    Class { collections, ..serde_json::from_value(triggers).unwrap() }
}

fn empty() -> Grid {
    Grid::new(Store::memory(), class(&["a", "b/c"]))
}

async fn put(grid: &Grid, collection: &str, id: &str, count: i32) {
    let id = ObjectId::parse(id).unwrap();
    let state = json!({"count": count}).as_object().unwrap().clone();
    grid.put(Some(collection), &id, state, Expected::Anything).await.unwrap();
}

async fn send(grid: &Grid, path: &str, body: Body) -> (u16, String) {
    send_as(Access::Internal, grid, path, body).await
}

async fn send_as(caller: Access, grid: &Grid, path: &str, body: Body) -> (u16, String) {
    let request = Request::post(path).body(body).unwrap();
    let response = router(grid.clone(), caller).oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn filled() -> Grid {
    let grid = empty();
    for number in 0..150 {
        put(&grid, "a", &format!("object-{number}"), number).await;
    }
    put(&grid, "b/c", "é", 1).await;
    grid
}

#[tokio::test]
async fn a_backup_is_restored_into_another_engine() {
    let grid = filled().await;
    let (status, backup) = send(&grid, "/backup", Body::empty()).await;
    assert_eq!(status, 200);
    let lines: Vec<Value> = backup.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let header = json!({
        "backup": 1, "class": "Cart", "collections": ["a", "b/c"], "epoch": grid.epoch(), "revision": 151,
    });
    assert_eq!(lines[0], header);
    // Each object has an event.
    assert_eq!(lines.last().unwrap(), &json!({"end": true, "records": 302}));
    assert_eq!(lines.len(), 304);
    let folder = tempfile::tempdir().unwrap();
    let store = Store::redb(RedbOptions::new(folder.path().join("r"), "test")).await.unwrap();
    let other = Grid::open(store, class(&["b/c", "a"])).await.unwrap();
    let restored = send(&other, "/restore", backup.clone().into()).await;
    assert_eq!(
        restored,
        (200, json!({"records": 302, "skipped": 0, "restoredBefore": false}).to_string())
    );
    // The client may not have got the response.
    let repeated = send(&other, "/restore", backup.clone().into()).await;
    assert_eq!(
        repeated,
        (200, json!({"records": 302, "skipped": 0, "restoredBefore": true}).to_string())
    );
    assert_eq!((other.count("a").await.unwrap(), other.count("b/c").await.unwrap()), (150, 1));
    let again = send(&other, "/backup", Body::empty()).await.1;
    let records = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(records(&again), records(&backup));
}

#[tokio::test]
async fn a_repeated_restoration_writes_nothing() {
    let backup = send(&filled().await, "/backup", Body::empty()).await.1;
    let grid = empty();
    assert_eq!(send(&grid, "/restore", backup.clone().into()).await.0, 200);
    put(&grid, "a", "object-7", 1000).await;
    let deleted = ObjectId::parse("object-8").unwrap();
    grid.delete(Some("a"), &deleted, Expected::Anything).await.unwrap();
    let before = send(&grid, "/backup", Body::empty()).await.1;
    let (status, body) = send(&grid, "/restore", backup.clone().into()).await;
    assert!(status == 200 && body.contains("\"restoredBefore\":true"), "{body}");
    assert_eq!(send(&grid, "/backup", Body::empty()).await.1, before, "with the same revision");
    // An incomplete file is still reported.
    let part: String = backup.split_inclusive('\n').take(120).collect();
    assert_eq!(send(&grid, "/restore", part.into()).await.0, 400);
    // Another backup needs an empty grid.
    let other = backup.replacen("\"revision\":151", "\"revision\":152", 1);
    assert_eq!(send(&grid, "/restore", other.into()).await.0, 409);
}

#[tokio::test]
async fn an_interrupted_restoration_can_be_repeated() {
    let backup = send(&filled().await, "/backup", Body::empty()).await.1;
    let part: String = backup.split_inclusive('\n').take(120).collect();
    let grid = empty();
    let (status, problem) = send(&grid, "/restore", part.into()).await;
    assert_eq!(status, 400);
    assert!(problem.contains("line 121 is invalid: is missing"), "{problem}");
    // Another backup isn't accepted.
    let other = backup.replacen("\"revision\":151", "\"revision\":152", 1);
    assert_eq!(send(&grid, "/restore", other.into()).await.0, 409);
    assert_eq!(send(&grid, "/restore", backup.into()).await.0, 200);
    assert_eq!(grid.count("a").await.unwrap(), 150);
}

#[tokio::test]
async fn a_grid_with_objects_is_left_alone() {
    let backup = send(&filled().await, "/backup", Body::empty()).await.1;
    let grid = empty();
    put(&grid, "a", "x", 1).await;
    let (status, problem) = send(&grid, "/restore", backup.into()).await;
    assert!(status == 409 && problem.contains("NOT_EMPTY"), "{problem}");
    assert_eq!(grid.count("a").await.unwrap(), 1);
}

#[tokio::test]
async fn private_data_is_backed_up_and_restored_only_by_operators() {
    let grid = filled().await;
    grid.set_class(Class { data_access: Access::Private, ..(*grid.class()).clone() });
    let (status, problem) = send(&grid, "/backup", Body::empty()).await;
    assert!(status == 403 && problem.contains("ADMIN_ONLY"), "{problem}");
    let (status, backup) = send_as(Access::Private, &grid, "/backup", Body::empty()).await;
    assert_eq!(status, 200);
    let other = empty();
    other.set_class(Class { data_access: Access::Private, ..(*other.class()).clone() });
    assert_eq!(send(&other, "/restore", backup.clone().into()).await.0, 403);
    assert_eq!(other.count("a").await.unwrap(), 0);
    let (status, body) = send_as(Access::Private, &other, "/restore", backup.into()).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(other.count("a").await.unwrap(), 150);
}

#[tokio::test]
async fn invalid_backups_are_refused() {
    let header = r#"{"backup":1,"class":"Cart","collections":["a"],"revision":1}"#;
    let object = r#"{"state":{},"created":1,"changed":1,"last":""}"#;
    let cases = [
        (String::new(), "line 1"),
        ("{}\n".to_owned(), "line 1"),
        (header.replace("\"backup\":1", "\"backup\":2"), "expected: 1"),
        (header.replace("[\"a\"]", "[\"z\"]"), "expected: a, b/c"),
        (format!("{header}\n{{\"end\":true,\"records\":1}}\n"), "there were 0"),
        (format!("{header}\n{{\"key\":\"p/a/0\",\"value\":{{}}}}\n"), "expected: one that starts"),
        (format!("{header}\n{{\"key\":\"o/a/x\",\"value\":{{}}}}\n"), "line 2"),
        (format!("{header}\n{{\"key\":\"o/b/x\",\"value\":{object}}}\n"), "does not name"),
    ];
    for (body, expected) in cases {
        let (status, problem) = send(&empty(), "/restore", body.clone().into()).await;
        assert!(status == 400 && problem.contains(expected), "{body}: {problem}");
    }
}

async fn add(Json(call): Json<Value>) -> Json<Value> {
    let count = call["object"]["state"]["count"].as_i64().unwrap() + 1;
    Json(json!({"object": {"state": {"count": count}}, "result": count}))
}

/// A grid with a function that counts, and with another one at this address.
async fn counting(pay: &str) -> Grid {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let functions = Router::new().route("/add", post(add)).route("/pay", post(add));
    tokio::spawn(async { axum::serve(listener, functions).await.unwrap() });
    let pay = if pay.is_empty() { format!("{url}/pay") } else { pay.to_owned() };
    let class = json!({
        "name": "Cart",
        "collections": ["a"],
        "methods": {"add": {"url": format!("{url}/add")}, "pay": {"url": pay}},
        "macros": {"checkout": {"steps": [{"method": "add"}, {"method": "pay"}]}},
    });
    Grid::new(Store::memory(), serde_json::from_value(class).unwrap())
}

fn call(method: &str, key: Option<&str>) -> Invocation {
    let id = ObjectId::parse("x").unwrap();
    let call = Invocation::new(id, method, Value::Null, Access::Internal);
    Invocation { idempotency_key: key.map(str::to_owned), ..call }
}

#[tokio::test]
async fn repeated_calls_are_recognised_after_a_restore() {
    let grid = counting("http://127.0.0.1:1").await;
    put(&grid, "a", "x", 0).await;
    assert_eq!(grid.invoke(&call("add", Some("k"))).await.unwrap().result, json!(1));
    for key in [Some("m"), None] {
        let error = grid.invoke(&call("checkout", key)).await.unwrap_err();
        assert!(matches!(error, Error::StepFailed { .. }), "{error}");
    }
    let backup = send(&grid, "/backup", Body::empty()).await.1;
    assert_eq!(backup.lines().filter(|it| it.contains("\"r/")).count(), 1, "{backup}");
    let restored = counting("").await;
    let (status, body) = send(&restored, "/restore", backup.into()).await;
    assert_eq!(status, 200, "{body}");
    let again = restored.invoke(&call("add", Some("k"))).await.unwrap();
    assert_eq!((again.result, again.repeated), (json!(1), true));
    // The object has the changes of both first steps, and the run continues with its second.
    let finished = restored.invoke(&call("checkout", Some("m"))).await.unwrap();
    assert_eq!(finished.result, json!(4));
}
