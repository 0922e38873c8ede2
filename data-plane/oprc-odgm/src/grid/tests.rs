use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use axum::{Json, Router, extract::State as Shared, http::StatusCode, routing::post};
use oprc_cp_storage::RedbOptions;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

use super::{
    commit::{MAX_PENDING_EVENTS, PENDING_EVENTS_STEP},
    *,
};
use crate::{
    Expected, Invocation,
    class::{Access, State},
    invocation::CallOrigin,
    method_call::MAX_ARGUMENT_BYTES,
};

/// Functions of the class, and how many of their calls run.
#[derive(Clone, Debug, Default)]
struct Counter {
    active: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    calls: Arc<AtomicUsize>,
}

async fn add(Shared(counter): Shared<Counter>, Json(call): Json<Value>) -> Json<Value> {
    counter.calls.fetch_add(1, Ordering::SeqCst);
    let active = counter.active.fetch_add(1, Ordering::SeqCst) + 1;
    counter.most.fetch_max(active, Ordering::SeqCst);
    tokio::task::yield_now().await;
    counter.active.fetch_sub(1, Ordering::SeqCst);
    let count = call["object"]["state"]["count"].as_i64().unwrap_or_default()
        + call["args"]["by"].as_i64().unwrap_or(1);
    Json(json!({"object": {"state": {"count": count}}, "result": count}))
}

async fn read(Json(call): Json<Value>) -> Json<Value> {
    Json(json!({"result": call["object"]["state"]["count"]}))
}

/// Starts the functions and returns a grid that calls them.
async fn grid(store: Store, state_type: &str) -> (Grid, Counter) {
    let counter = Counter::default();
    let other = json!({"object": {"id": "other", "state": {"count": 1}}});
    let wrong = json!({"object": {"state": {"count": "one"}}});
    let router = Router::new()
        .route("/add", post(add))
        .route("/read", post(read))
        .route("/other", post(async move || Json(other)))
        .route("/wrong", post(async move || Json(wrong)))
        .route("/garbage", post(async || "<html>"))
        .route("/large", post(async || "x".repeat(1 << 20)))
        .route("/fail", post(async || StatusCode::INTERNAL_SERVER_ERROR))
        .route("/refuse", post(async || (StatusCode::CONFLICT, "sold out")))
        .route("/hang", post(async || std::future::pending::<()>().await))
        .with_state(counter.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
    let names =
        ["add", "read", "other", "wrong", "garbage", "large", "fail", "refuse", "hang", "reads"];
    let methods = names.map(|name| {
        let path = if name == "reads" { "add" } else { name };
        let read_only = name.starts_with("read");
        let method = json!({
            "url": format!("{url}/{path}"), "readOnly": read_only, "access": "PUBLIC", "timeoutMs": 500,
        });
        (name.to_owned(), method)
    });
    let mut class = json!({
        "name": "counter",
        "stateType": state_type,
        "collections": ["Counter"],
        "keySpecs": [{"name": "count", "type": "INTEGER", "optional": true}],
        "methods": serde_json::Map::from_iter(methods),
    });
    class["methods"]["gone"] = json!({"url": "http://127.0.0.1:1/", "access": "PUBLIC"});
    (Grid::new(store, serde_json::from_value(class).unwrap()), counter)
}

fn id(text: &str) -> ObjectId {
    ObjectId::parse(text).unwrap()
}

fn state(value: Value) -> State {
    serde_json::from_value(value).unwrap()
}

fn call(object: &str, method: &str) -> Invocation {
    Invocation::new(id(object), method, json!({}), Access::Public)
}

async fn created(store: Store) -> (Grid, Counter) {
    let (grid, counter) = grid(store, "NORMAL").await;
    grid.put(None, &id("a"), state(json!({"count": 0})), Expected::Absent).await.unwrap();
    (grid, counter)
}

#[tokio::test]
async fn objects_are_written_read_and_listed() {
    let (grid, _) = created(Store::memory()).await;
    let before = grid.get(None, &id("a")).await.unwrap();
    assert_eq!(before.state, state(json!({"count": 0})));
    let changed = grid.patch(None, &id("a"), state(json!({"count": 5})), Expected::Exists).await;
    let changed = changed.unwrap();
    assert!(changed.version > before.version);
    let stale = Expected::OneOf(vec![before.version]);
    let error = grid.put(None, &id("a"), State::new(), stale.clone()).await.unwrap_err();
    assert_eq!(error, Error::Changed { version: Some(changed.version) });
    let error = grid.delete(None, &id("a"), stale).await.unwrap_err();
    assert_eq!(error, Error::Changed { version: Some(changed.version) });
    let error = grid.put(None, &id("a"), State::new(), Expected::Absent).await.unwrap_err();
    assert_eq!(error, Error::Changed { version: Some(changed.version) });
    let error = grid.patch(None, &id("b"), State::new(), Expected::Anything).await.unwrap_err();
    assert_eq!(error, Error::NotFound("b".to_owned()));
    let wrong = state(json!({"count": true, "other": 1}));
    let error = grid.patch(None, &id("a"), wrong, Expected::Anything).await.unwrap_err();
    assert!(matches!(error, Error::InvalidState { problems } if problems.len() == 2));
    let removed = state(json!({"count": null}));
    let found = grid.patch(None, &id("a"), removed, Expected::Anything).await.unwrap();
    assert_eq!(found.state, State::new());
    assert_eq!(grid.get(None, &id("a")).await.unwrap(), found);

    for number in 0..25 {
        let name = id(&format!("item-{number:02}"));
        grid.put(None, &name, State::new(), Expected::Anything).await.unwrap();
    }
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let page = grid.list(None, "item-", after.as_deref(), 10).await.unwrap();
        ids.extend(page.objects.into_iter().map(|it| it.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let expected: Vec<_> = (0..25).map(|number| format!("item-{number:02}")).collect();
    assert_eq!(ids, expected);
    grid.delete(None, &id("a"), Expected::Anything).await.unwrap();
    assert!(matches!(grid.get(None, &id("a")).await, Err(Error::NotFound(_))));
    assert!(matches!(grid.get(Some("None"), &id("a")).await, Err(Error::UnknownCollection(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_calls_of_one_object_are_all_counted() {
    let folder = tempfile::tempdir().unwrap();
    let file =
        Store::redb(RedbOptions::new(folder.path().join("grid.redb"), "node-0")).await.unwrap();
    for store in [Store::memory(), file] {
        let (grid, counter) = created(store).await;
        let mut calls = JoinSet::new();
        for _ in 0..200 {
            let grid = grid.clone();
            calls.spawn(async move { grid.invoke(&call("a", "add")).await.unwrap().result });
        }
        let mut results: Vec<_> =
            calls.join_all().await.iter().map(|it| it.as_i64().unwrap()).collect();
        results.sort_unstable();
        assert_eq!(results, (1..=200).collect::<Vec<_>>());
        assert_eq!(counter.most.load(Ordering::SeqCst), 1, "one turn at a time");
        let found = grid.invoke(&call("a", "read")).await.unwrap();
        assert_eq!(found.result, json!(200));
    }
}

/// Another node that believes to be the owner can't undo a change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grids_that_share_a_store_lose_no_change() {
    let store = Store::memory();
    let (first, _) = created(store.clone()).await;
    let (second, _) = grid(store, "NORMAL").await;
    let mut calls = JoinSet::new();
    for number in 0..40 {
        let grid = if number % 2 == 0 { first.clone() } else { second.clone() };
        calls.spawn(async move {
            loop {
                match grid.invoke(&call("a", "add")).await {
                    Ok(_) => break,
                    Err(Error::Unavailable(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
    calls.join_all().await;
    assert_eq!(first.get(None, &id("a")).await.unwrap().state["count"], json!(40));
}

#[tokio::test]
async fn a_call_with_an_idempotency_key_changes_the_object_once() {
    let (grid, counter) = created(Store::memory()).await;
    let once = Invocation { idempotency_key: Some("k1".to_owned()), ..call("a", "add") };
    let first = grid.invoke(&once).await.unwrap();
    assert_eq!((first.result.clone(), first.repeated), (json!(1), false));
    let again = grid.invoke(&once).await.unwrap();
    assert_eq!((again.result, again.repeated), (json!(1), true));
    assert_eq!(counter.calls.load(Ordering::SeqCst), 1);
    let other = Invocation { args: json!({"by": 2}), ..once.clone() };
    assert_eq!(grid.invoke(&other).await, Err(Error::IdempotencyKeyReused));
    let next = Invocation { idempotency_key: Some("k2".to_owned()), ..once.clone() };
    assert_eq!(grid.invoke(&next).await.unwrap().result, json!(2));
    for bad in ["", "a b", "ä", &"x".repeat(129)] {
        let bad = Invocation { idempotency_key: Some(bad.to_owned()), ..once.clone() };
        assert!(matches!(grid.invoke(&bad).await, Err(Error::InvalidIdempotencyKey(_))));
    }
    // Results of the present period are kept.
    grid.forget_results().await.unwrap();
    assert!(grid.invoke(&once).await.unwrap().repeated);
}

#[tokio::test]
async fn failures_of_functions_change_nothing() {
    let (grid, _) = created(Store::memory()).await;
    let before = grid.get(None, &id("a")).await.unwrap();
    let failures = [
        ("other", "InvalidResponse"),
        ("wrong", "InvalidState"),
        ("garbage", "InvalidResponse"),
        ("large", "InvalidResponse"),
        ("fail", "FunctionFailed"),
        ("refuse", "Refused"),
        ("hang", "FunctionTimeout"),
        ("gone", "FunctionUnreachable"),
        ("none", "UnknownMethod"),
        // It only reads, and returns another state.
        ("reads", "Immutable"),
    ];
    for (method, expected) in failures {
        let error = grid.invoke(&call("a", method)).await.unwrap_err();
        assert!(format!("{error:?}").starts_with(expected), "{method}: {error:?}");
    }
    assert!(matches!(grid.invoke(&call("b", "add")).await, Err(Error::NotFound(_))));
    let large = Invocation { args: json!("x".repeat(MAX_ARGUMENT_BYTES)), ..call("a", "add") };
    assert!(matches!(grid.invoke(&large).await, Err(Error::TooLarge { .. })));
    assert_eq!(grid.get(None, &id("a")).await.unwrap(), before);
}

#[tokio::test]
async fn a_singleton_exists_from_the_start() {
    let (grid, _) = grid(Store::memory(), "SINGLETON").await;
    let only = ObjectId::SINGLETON;
    assert_eq!(grid.get(None, &id(only)).await.unwrap().state, State::new());
    assert_eq!(grid.invoke(&call(only, "add")).await.unwrap().result, json!(1));
    assert_eq!(grid.get(None, &id(only)).await.unwrap().state["count"], json!(1));
    assert!(matches!(grid.get(None, &id("a")).await, Err(Error::InvalidId(_))));
    assert!(matches!(grid.invoke(&call("a", "add")).await, Err(Error::InvalidId(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_waits_ends_with_its_caller() {
    let (grid, _) = created(Store::memory()).await;
    let hanging = tokio::spawn({
        let grid = grid.clone();
        async move { grid.invoke(&call("a", "hang")).await }
    });
    // Other objects don't wait for it.
    grid.put(None, &id("b"), state(json!({"count": 0})), Expected::Absent).await.unwrap();
    let other = tokio::time::timeout(Duration::from_millis(400), async {
        grid.invoke(&call("b", "add")).await.unwrap()
    });
    assert_eq!(other.await.unwrap().result, json!(1));
    hanging.abort();
    assert_eq!(grid.invoke(&call("a", "add")).await.unwrap().result, json!(1));
}

#[tokio::test]
async fn collections_and_pages_are_separate() {
    let (grid, _) = grid(Store::memory(), "NORMAL").await;
    let mut class = (*grid.class()).clone();
    class.collections = vec!["C".to_owned(), "C/x".to_owned()];
    class.key_specs.clear();
    grid.set_class(class);
    let large = state(json!({"text": "x".repeat(200 << 10)}));
    for number in 0..30 {
        let name = id(&format!("{number:02}"));
        grid.put(Some("C/x"), &name, large.clone(), Expected::Absent).await.unwrap();
    }
    assert_eq!(grid.list(Some("C"), "", None, 100).await.unwrap().objects, []);
    let first = grid.list(Some("C/x"), "", None, 100).await.unwrap();
    assert!(first.objects.len() < 30, "a page is bounded by its bytes");
    let rest = grid.list(Some("C/x"), "", first.next.as_deref(), 100).await.unwrap();
    let all = first.objects.len() + rest.objects.len();
    assert!(all == 30 || rest.next.is_some(), "{all}");
    let long = grid.put(Some("C/x"), &id(&"y".repeat(200)), State::new(), Expected::Absent).await;
    long.unwrap();
}

#[tokio::test]
async fn calls_have_conditions_and_are_not_reentrant() {
    let (grid, counter) = created(Store::memory()).await;
    let version = grid.get(None, &id("a")).await.unwrap().version;
    let stale = Invocation { expected: Expected::OneOf(vec![version + 1]), ..call("a", "add") };
    assert_eq!(grid.invoke(&stale).await, Err(Error::Changed { version: Some(version) }));
    let origin = CallOrigin::default().extended("o/Counter/a", i64::MAX).unwrap();
    let own = Invocation { origin, ..call("a", "add") };
    assert_eq!(grid.invoke(&own).await, Err(Error::Reentrant("a".to_owned())));
    assert_eq!(counter.calls.load(Ordering::SeqCst), 0);
    let fresh = Invocation { expected: Expected::OneOf(vec![7, version]), ..call("a", "add") };
    assert_eq!(grid.invoke(&fresh).await.unwrap().result, json!(1));
}

#[tokio::test]
async fn conditions_are_checked_before_the_function_is_called() {
    let (grid, counter) = created(Store::memory()).await;
    let mut class = (*grid.class()).clone();
    let condition = "object.state.count < 2 && args.by > 0";
    class.methods.get_mut("add").unwrap().condition =
        Some(oprc_condition::Condition::parse(condition).unwrap());
    grid.set_class(class);
    let by = |by: Value| Invocation { args: json!({"by": by}), ..call("a", "add") };
    assert_eq!(grid.invoke(&by(json!(2))).await.unwrap().result, json!(2));
    let refused = grid.invoke(&by(json!(2))).await.unwrap_err();
    assert_eq!(refused, Error::ConditionFalse("add".to_owned()));
    grid.patch(None, &id("a"), state(json!({"count": 0})), Expected::Exists).await.unwrap();
    for args in [json!({}), json!({"by": "x"}), Value::Null] {
        let error = grid.invoke(&Invocation { args, ..call("a", "add") }).await.unwrap_err();
        assert!(matches!(error, Error::ConditionFailed { .. }), "{error}");
    }
    assert_eq!(counter.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn immutable_methods_take_turns_but_change_nothing() {
    let (grid, _) = created(Store::memory()).await;
    let mut class = (*grid.class()).clone();
    class.methods.get_mut("add").unwrap().immutable = true;
    class.methods.get_mut("other").unwrap().stateless = true;
    grid.set_class(class);
    let error = grid.invoke(&call("a", "add")).await.unwrap_err();
    assert_eq!(error, Error::Immutable("add".to_owned()));
    let same = Invocation { args: json!({"by": 0}), ..call("a", "add") };
    assert_eq!(grid.invoke(&same).await.unwrap().result, json!(0));
    assert_eq!(grid.get(None, &id("a")).await.unwrap().state["count"], json!(0));
    // The object of a stateless method need not exist, but it must not be changed either.
    let error = grid.invoke(&call("none", "other")).await.unwrap_err();
    assert_eq!(error, Error::Immutable("other".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_a_function_are_limited_over_all_objects() {
    let (grid, counter) = created(Store::memory()).await;
    let mut class = (*grid.class()).clone();
    class.methods.get_mut("add").unwrap().max_concurrency = Some(1);
    grid.set_class(class);
    let mut calls = JoinSet::new();
    for number in 0..20 {
        let name = format!("n{number}");
        grid.put(None, &id(&name), State::new(), Expected::Absent).await.unwrap();
        let grid = grid.clone();
        calls.spawn(async move { grid.invoke(&call(&name, "add")).await.unwrap().result });
    }
    assert_eq!(calls.join_all().await, vec![json!(1); 20]);
    assert_eq!(counter.most.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn functions_that_are_not_reached_are_called_again() {
    let (grid, _) = created(Store::memory()).await;
    let failures = Arc::new(AtomicUsize::new(3));
    let flaky = {
        let failures = failures.clone();
        async move || {
            let left =
                failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |it| it.checked_sub(1));
            let status = if left.is_ok() { StatusCode::BAD_GATEWAY } else { StatusCode::OK };
            (status, Json(json!({"result": "ok"})))
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let router = Router::new().route("/", post(flaky));
    tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
    let mut class = (*grid.class()).clone();
    let method = json!({"url": url, "access": "PUBLIC", "retries": 2});
    class.methods.insert("flaky".to_owned(), serde_json::from_value(method).unwrap());
    grid.set_class(class);
    let error = grid.invoke(&call("a", "flaky")).await.unwrap_err();
    assert_eq!(error, Error::FunctionFailed(502), "after three attempts");
    failures.store(2, Ordering::SeqCst);
    assert_eq!(grid.invoke(&call("a", "flaky")).await.unwrap().result, json!("ok"));
    // Retries end with the call that this one belongs to.
    failures.store(usize::MAX, Ordering::SeqCst);
    let mut nested = call("a", "flaky");
    nested.origin.expires = Some(now() + 20);
    let error = grid.invoke(&nested).await.unwrap_err();
    assert!(matches!(error, Error::FunctionTimeout(_) | Error::FunctionFailed(502)), "{error}");
}

#[tokio::test]
async fn changes_are_refused_while_too_many_events_wait() {
    let (grid, _) = created(Store::memory()).await;
    let mut class = (*grid.class()).clone();
    class.triggers = serde_json::from_value(json!([{"method": "read"}])).unwrap();
    grid.set_class(class);
    let mut changes = 0;
    let error = loop {
        match grid.put(None, &id("b"), State::new(), Expected::Anything).await {
            Ok(_) => changes += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, Error::EventsPending(changes));
    assert!((MAX_PENDING_EVENTS..MAX_PENDING_EVENTS + PENDING_EVENTS_STEP).contains(&changes));
    grid.put(None, &id("c"), State::new(), Expected::Absent).await.unwrap();
}

#[tokio::test]
async fn etags_of_another_store_match_nothing() {
    let class = (*grid(Store::memory(), "NORMAL").await.0.class()).clone();
    let (first, second) = (Store::memory(), Store::memory());
    let before = Grid::open(first.clone(), class.clone()).await.unwrap();
    let written = before.put(None, &id("a"), State::new(), Expected::Absent).await.unwrap();
    let tag = before.etag(written.version);
    let again = Grid::open(first, class.clone()).await.unwrap();
    assert_eq!(again.version_of_etag(&tag), Some(written.version));
    let restarted = Grid::open(second, class).await.unwrap();
    assert_eq!(restarted.version_of_etag(&tag), None);
    for bad in ["", "\"\"", "\"1\"", "\"zzzzzzzz-1\"", "\"-\"", "1-1"] {
        assert_eq!(again.version_of_etag(bad), None, "{bad}");
    }
}

#[tokio::test]
async fn numbers_are_exact() {
    let (grid, _) = grid(Store::memory(), "NORMAL").await;
    let mut class = (*grid.class()).clone();
    class.key_specs.clear();
    grid.set_class(class);
    let numbers = r#"{"a":0.1,"b":4.35,"c":1e300,"d":5e-324,"e":123456789.12345679,"f":2.2250738585072014e-308,"g":18446744073709551615}"#;
    let written: State = serde_json::from_str(numbers).unwrap();
    grid.put(None, &id("a"), written.clone(), Expected::Absent).await.unwrap();
    assert_eq!(grid.get(None, &id("a")).await.unwrap().state, written);
    assert_eq!(written["e"].as_f64().unwrap().to_bits(), 123_456_789.123_456_79_f64.to_bits());
}
