use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use axum::{
    Json, Router,
    extract::State as Shared,
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::post,
};
use oprc_cp_storage::{RedbOptions, Store};
use serde_json::json;
use tokio::{net::TcpListener, sync::Notify};

use super::*;
use crate::{Expected, router};

/// The functions of the class.
#[derive(Clone, Debug, Default)]
struct Functions {
    /// Calls of `add`.
    adds: Arc<AtomicUsize>,
    /// Whether `pay` refuses calls, and whether it hangs.
    refuses: Arc<AtomicBool>,
    hangs: Arc<AtomicBool>,
    paying: Arc<Notify>,
}

async fn add(Shared(functions): Shared<Functions>, Json(call): Json<Value>) -> Json<Value> {
    functions.adds.fetch_add(1, Ordering::SeqCst);
    let count = call["object"]["state"]["count"].as_i64().unwrap_or_default()
        + call["args"]["by"].as_i64().unwrap_or(1);
    let mut state = call["object"]["state"].clone();
    state["count"] = json!(count);
    Json(json!({"object": {"state": state}, "result": {"count": count, "args": call["args"]}}))
}

async fn pay(Shared(functions): Shared<Functions>, Json(call): Json<Value>) -> Response {
    functions.paying.notify_one();
    if functions.hangs.load(Ordering::SeqCst) {
        std::future::pending::<()>().await;
    }
    if functions.refuses.load(Ordering::SeqCst) {
        return (StatusCode::PAYMENT_REQUIRED, "no money").into_response();
    }
    Json(json!({"result": {"paid": call["args"]}})).into_response()
}

async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
    url
}

async fn class(functions: &Functions, macros: Value, other: &str) -> Class {
    let routes = Router::new()
        .route("/add", post(add))
        .route("/pay", post(pay))
        .with_state(functions.clone());
    let url = serve(routes).await;
    let class: Class = serde_json::from_value(json!({
        "name": "cart",
        "collections": ["Cart"],
        "methods": {
            "add": {"url": format!("{url}/add"), "access": "PRIVATE"},
            "pay": {"url": format!("{url}/pay"), "access": "PRIVATE"},
        },
        "macros": macros,
        "references": {"stock": {"class": "shop.Stock", "url": other}},
    }))
    .unwrap();
    class.validate().unwrap();
    class
}

fn checkout() -> Value {
    json!({"checkout": {"access": "PUBLIC", "steps": [
        {"name": "added", "method": "add", "args": {"unit": "cm"}, "argRefs": {"by": "$args.n"}},
        {"name": "paid", "method": "pay", "argRefs": {"sum": "added.count", "of": "$.owner"},
         "inputs": ["$"]},
        {"method": "add", "args": {"by": 100}},
    ], "output": "paid"}})
}

async fn created(store: &Store, class: &Class, id: &str, state: Value) -> Grid {
    let grid = Grid::new(store.clone(), class.clone());
    let state = serde_json::from_value(state).unwrap();
    grid.put(None, &ObjectId::parse(id).unwrap(), state, Expected::Absent).await.unwrap();
    grid
}

fn call(method: &str, args: Value, key: Option<&str>) -> Invocation {
    let id = ObjectId::parse("a").unwrap();
    let mut call = Invocation::new(id, method, args, Access::Public);
    call.idempotency_key = key.map(str::to_owned);
    call
}

async fn count(grid: &Grid) -> Value {
    grid.get(None, &ObjectId::parse("a").unwrap()).await.unwrap().state["count"].clone()
}

async fn runs(store: &Store) -> usize {
    store.list(RUNS).await.unwrap().entries.len()
}

#[tokio::test]
async fn steps_use_arguments_state_and_earlier_results() {
    let (functions, store) = (Functions::default(), Store::memory());
    let class = class(&functions, checkout(), "http://127.0.0.1:1").await;
    let grid = created(&store, &class, "a", json!({"count": 1, "owner": "ann"})).await;
    let once = call("checkout", json!({"n": 5}), Some("k"));
    let outcome = grid.invoke(&once).await.unwrap();
    let expected =
        json!({"paid": {"sum": 6, "of": "ann", "inputs": [{"count": 6, "owner": "ann"}]}});
    assert_eq!((outcome.result, outcome.repeated), (expected.clone(), false));
    assert_eq!(count(&grid).await, json!(106));
    assert_eq!(functions.adds.load(Ordering::SeqCst), 2);
    let again = grid.invoke(&once).await.unwrap();
    assert_eq!((again.result, again.repeated), (expected, true));
    assert_eq!(functions.adds.load(Ordering::SeqCst), 2);
    let other = call("checkout", json!({"n": 6}), Some("k"));
    assert_eq!(grid.invoke(&other).await, Err(Error::IdempotencyKeyReused));
    assert_eq!(runs(&store).await, 0);
    let missing = grid.invoke(&call("checkout", json!({}), None)).await.unwrap_err();
    assert!(missing.to_string().contains("added") && missing.to_string().contains("$args.n"));
    assert!(matches!(
        grid.invoke(&call("pay", json!({}), None)).await,
        Err(Error::Forbidden { .. })
    ));
}

#[tokio::test]
async fn a_failed_step_is_named_and_a_repeated_call_continues_with_it() {
    let (functions, store) = (Functions::default(), Store::memory());
    let class = class(&functions, checkout(), "http://127.0.0.1:1").await;
    let grid = created(&store, &class, "a", json!({"count": 0})).await;
    functions.refuses.store(true, Ordering::SeqCst);
    let once = call("checkout", json!({"n": 5}), Some("k"));
    for _ in 0..2 {
        let Err(Error::StepFailed { step, error }) = grid.invoke(&once).await else { panic!() };
        let refused = Error::Refused { status: 402, detail: "no money".to_owned() };
        assert_eq!((step.as_str(), *error), ("paid", refused));
        assert_eq!(count(&grid).await, json!(5));
    }
    assert_eq!(runs(&store).await, 1);
    functions.refuses.store(false, Ordering::SeqCst);
    grid.invoke(&once).await.unwrap();
    assert_eq!(count(&grid).await, json!(105));
    assert_eq!(functions.adds.load(Ordering::SeqCst), 2);
    // Without a key nothing is left of a failed run.
    functions.refuses.store(true, Ordering::SeqCst);
    grid.invoke(&call("checkout", json!({"n": 1}), None)).await.unwrap_err();
    assert_eq!(runs(&store).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_a_crash_interrupted_is_continued_and_repeats_no_change() {
    for key in [Some("k"), None] {
        let (functions, folder) = (Functions::default(), tempfile::tempdir().unwrap());
        let options = || RedbOptions::new(folder.path().join("grid.redb"), "node-0");
        let store = Store::redb(options()).await.unwrap();
        let class = class(&functions, checkout(), "http://127.0.0.1:1").await;
        let grid = created(&store, &class, "a", json!({"count": 0})).await;
        functions.hangs.store(true, Ordering::SeqCst);
        let once = call("checkout", json!({"n": 5}), key);
        let running = tokio::spawn({
            let (grid, once) = (grid.clone(), once.clone());
            async move { grid.invoke(&once).await }
        });
        functions.paying.notified().await;
        if key.is_some() {
            assert_eq!(grid.invoke(&once).await, Err(Error::Running));
        }
        running.abort();
        drop(running.await);
        drop(grid);
        store.close().await;
        let store = Store::redb(options()).await.unwrap();
        functions.hangs.store(false, Ordering::SeqCst);
        let restarted = Grid::open(store.clone(), class.clone()).await.unwrap();
        restarted.resume_macros(|_, _| false).await.unwrap();
        assert_eq!(runs(&store).await, 1, "it belongs to another node");
        restarted.resume_macros(|_, _| true).await.unwrap();
        assert_eq!((runs(&store).await, count(&restarted).await), (0, json!(105)));
        assert_eq!(functions.adds.load(Ordering::SeqCst), 2);
        if key.is_some() {
            assert!(restarted.invoke(&once).await.unwrap().repeated);
        }
    }
}

/// The change of a step was stored, but not that the step was made.
#[tokio::test]
async fn a_step_whose_progress_was_lost_changes_the_object_once() {
    let (functions, store) = (Functions::default(), Store::memory());
    let class = class(&functions, checkout(), "http://127.0.0.1:1").await;
    let grid = created(&store, &class, "a", json!({"count": 0})).await;
    functions.refuses.store(true, Ordering::SeqCst);
    let once = call("checkout", json!({"n": 5}), Some("k"));
    grid.invoke(&once).await.unwrap_err();
    let entry = store.list(RUNS).await.unwrap().entries.remove(0);
    let mut record: RunRecord = decode(&entry.key, &entry.value).unwrap();
    record.next = 0;
    record.failure = None;
    record.results.clear();
    record.call = Some(run::StepCall {
        remote: None,
        collection: Some("Cart".to_owned()),
        object: "a".to_owned(),
        args: json!({"unit": "cm", "by": 5}),
    });
    let stored = Transaction::new().put(entry.key, record.encode().unwrap());
    store.commit(stored).await.unwrap();
    functions.refuses.store(false, Ordering::SeqCst);
    grid.resume_macros(|_, _| true).await.unwrap();
    assert_eq!((runs(&store).await, count(&grid).await), (0, json!(105)));
    assert_eq!(functions.adds.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn steps_call_other_objects_and_other_classes() {
    let (functions, stock_functions) = (Functions::default(), Functions::default());
    let mut stock_class = class(&stock_functions, json!({}), "http://127.0.0.1:1").await;
    stock_class.methods.get_mut("add").unwrap().access = Access::Internal;
    let stock = created(&Store::memory(), &stock_class, "s-1", json!({"count": 10})).await;
    let url = serve(router(stock.clone(), Access::Internal)).await;
    let macros = json!({
        "move": {"access": "PUBLIC", "steps": [
            {"method": "add", "target": "$.stock", "args": {"by": -3}, "name": "stock"},
            {"method": "add", "target": "$args.to", "args": {"by": 3}},
            {"method": "nested", "argRefs": {"stock": "stock.count"}, "name": "nested"},
            {"method": "secret", "target": "$.stock"},
        ]},
        "nested": {"steps": [{"method": "pay", "argRefs": {"n": "$args.stock"}}]},
        "loop": {"access": "PUBLIC", "steps": [{"method": "loop"}]},
    });
    let store = Store::memory();
    let class = class(&functions, macros, &url).await;
    let grid = created(&store, &class, "a", json!({"count": 0, "stock": "s-1"})).await;
    let other = ObjectId::parse("b").unwrap();
    grid.put(None, &other, crate::class::State::new(), Expected::Absent).await.unwrap();
    let error = grid.invoke(&call("move", json!({"to": "b"}), None)).await.unwrap_err();
    let Error::StepFailed { step, error } = error else { panic!("{error}") };
    assert_eq!(step, "#4");
    assert!(
        matches!(*error, Error::OtherGrid { status: 404, ref class, .. } if class == "shop.Stock")
    );
    let found = stock.get(None, &ObjectId::parse("s-1").unwrap()).await.unwrap();
    assert_eq!(found.state["count"], json!(7));
    assert_eq!(grid.get(None, &other).await.unwrap().state["count"], json!(3));
    let mut error = grid.invoke(&call("loop", json!({}), None)).await.unwrap_err();
    while let Error::StepFailed { error: inner, .. } = error {
        error = *inner;
    }
    assert!(matches!(error, Error::TooDeep(_)), "{error}");
    // Steps have idempotency keys, so those that are macros are kept for a while.
    for entry in store.list(RUNS).await.unwrap().entries {
        let record: RunRecord = decode(&entry.key, &entry.value).unwrap();
        assert!(record.failure.is_some() && record.idempotency_key.is_some());
    }
}

#[tokio::test]
async fn failed_runs_are_forgotten() {
    let (functions, store) = (Functions::default(), Store::memory());
    let class = class(&functions, checkout(), "http://127.0.0.1:1").await;
    let grid = created(&store, &class, "a", json!({"count": 0})).await;
    functions.refuses.store(true, Ordering::SeqCst);
    for key in ["old", "new"] {
        grid.invoke(&call("checkout", json!({"n": 5}), Some(key))).await.unwrap_err();
    }
    let entry = store.list(RUNS).await.unwrap().entries.remove(0);
    let mut record: RunRecord = decode(&entry.key, &entry.value).unwrap();
    record.at = 0;
    record.deadline = 0;
    let stored = Transaction::new().put(entry.key, record.encode().unwrap());
    store.commit(stored).await.unwrap();
    grid.forget_results().await.unwrap();
    assert_eq!(runs(&store).await, 1);
}
