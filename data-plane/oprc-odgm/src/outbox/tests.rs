use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    Json, Router,
    extract::State as Shared,
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::post,
};
use oprc_cp_storage::Store;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::*;
use crate::{
    Expected, Invocation, ObjectId,
    class::{Access, Class, TriggerType},
};

/// A function that records its calls.
#[derive(Clone, Debug, Default)]
struct Function {
    seen: Arc<Mutex<Vec<Value>>>,
    is_down: Arc<AtomicBool>,
    /// Whether it refuses calls on the object `bad`.
    refuses: Arc<AtomicBool>,
}

async fn observe(Shared(function): Shared<Function>, Json(call): Json<Value>) -> Response {
    if function.is_down.load(Ordering::SeqCst) {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    if call["object"]["id"] == "bad" && function.refuses.load(Ordering::SeqCst) {
        return (StatusCode::UNPROCESSABLE_ENTITY, "not this one").into_response();
    }
    function.seen.lock().push(call);
    Json(json!({})).into_response()
}

async fn add(Json(call): Json<Value>) -> Json<Value> {
    let count = call["object"]["state"]["count"].as_i64().unwrap_or_default() + 1;
    Json(json!({"object": {"state": {"count": count}}}))
}

async fn class(function: &Function, triggers: &[&str]) -> Class {
    let router = Router::new()
        .route("/observe", post(observe))
        .route("/add", post(add))
        .with_state(function.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
    let method = |path| json!({"url": format!("{url}/{path}"), "access": "PUBLIC"});
    let triggers: Vec<_> = triggers.iter().map(|method| json!({"method": method})).collect();
    serde_json::from_value(json!({
        "name": "observed",
        "collections": ["Observed"],
        "methods": {"observe": method("observe"), "add": method("add"), "again": method("add")},
        "triggers": triggers,
        "maxTriggerDepth": 5,
    }))
    .unwrap()
}

/// A grid whose events are delivered until the end of the test.
fn running(store: &Store, class: &Class) -> (Grid, JoinSet<()>) {
    let grid = Grid::new(store.clone(), class.clone());
    let mut tasks = JoinSet::new();
    let outbox = Outbox { grid: grid.clone(), first_delay: Duration::from_millis(1) };
    tasks.spawn(outbox.run());
    (grid, tasks)
}

async fn put(grid: &Grid, id: &str, number: usize) {
    let state = serde_json::from_value(json!({"number": number})).unwrap();
    grid.put(None, &ObjectId::parse(id).unwrap(), state, Expected::Anything).await.unwrap();
}

async fn add_once(grid: &Grid, id: &str) {
    let id = ObjectId::parse(id).unwrap();
    let call = Invocation::new(id, "add", Value::Null, Access::Public);
    grid.invoke(&call).await.unwrap();
}

/// Waits until no events are left but those of parked objects.
async fn delivered(grid: &Grid, left: usize) {
    let mut watch = grid.store().watch(EVENTS, None).await.unwrap();
    while grid.store().list(EVENTS).await.unwrap().entries.len() != left {
        tokio::time::timeout(Duration::from_secs(20), watch.next())
            .await
            .expect("a delivery")
            .unwrap();
    }
}

impl Function {
    fn kinds(&self, id: &str) -> Vec<String> {
        let seen = self.seen.lock();
        let of = seen.iter().filter(|it| it["object"]["id"] == id);
        of.map(|it| it["args"]["event"].as_str().unwrap().to_owned()).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_change_calls_its_triggers_in_order() {
    let (function, store) = (Function::default(), Store::memory());
    let (grid, _tasks) = running(&store, &class(&function, &["observe"]).await);
    for number in 0..10 {
        for id in ["a", "b"] {
            put(&grid, id, number).await;
        }
    }
    let id = ObjectId::parse("a").unwrap();
    grid.delete(None, &id, Expected::Exists).await.unwrap();
    put(&grid, "a", 1).await;
    delivered(&grid, 0).await;
    let mut expected = vec!["CREATED".to_owned()];
    expected.extend(vec!["UPDATED".to_owned(); 9]);
    assert_eq!(function.kinds("b"), expected);
    expected.extend(["DELETED".to_owned(), "CREATED".to_owned()]);
    assert_eq!(function.kinds("a"), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_wait_for_a_function_and_survive_a_restart() {
    let (function, store) = (Function::default(), Store::memory());
    function.is_down.store(true, Ordering::SeqCst);
    let class = class(&function, &["observe"]).await;
    let (grid, tasks) = running(&store, &class);
    for number in 0..5 {
        put(&grid, "a", number).await;
    }
    drop(tasks);
    assert_eq!(function.kinds("a"), [""; 0]);
    let (grid, _tasks) = running(&store, &class);
    function.is_down.store(false, Ordering::SeqCst);
    delivered(&grid, 0).await;
    assert_eq!(function.kinds("a").len(), 5);
    assert_eq!(parked(&grid).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_event_is_parked_and_blocks_only_its_object() {
    let (function, store) = (Function::default(), Store::memory());
    function.refuses.store(true, Ordering::SeqCst);
    let class = class(&function, &["observe"]).await;
    let (grid, tasks) = running(&store, &class);
    let mut watch = store.watch(PARKED, None).await.unwrap();
    for number in 0..3 {
        put(&grid, "bad", number).await;
        put(&grid, "good", number).await;
    }
    tokio::time::timeout(Duration::from_mins(1), watch.next()).await.expect("parked").unwrap();
    delivered(&grid, 3).await;
    assert_eq!(function.kinds("good").len(), 3);
    let all = parked(&grid).await.unwrap();
    assert_eq!((all.len(), all[0].attempts), (1, MAX_REFUSALS));
    assert_eq!(all[0].reason, "the function refused the call: not this one");
    // It stays parked after a restart.
    drop(tasks);
    let (grid, _tasks) = running(&store, &class);
    put(&grid, "good", 4).await;
    delivered(&grid, 3).await;
    assert_eq!(function.kinds("bad"), [""; 0]);
    assert!(matches!(discard(&grid, "e/other/0").await, Err(Error::NotFound(_))));
    discard(&grid, &all[0].key).await.unwrap();
    let parked_again = tokio::time::timeout(Duration::from_mins(1), async {
        loop {
            let all = parked(&grid).await.unwrap();
            if let [next] = all.as_slice() {
                break next.clone();
            }
            watch.next().await.unwrap();
        }
    });
    let next = parked_again.await.expect("the next is parked, too");
    function.refuses.store(false, Ordering::SeqCst);
    retry(&grid, &next.key).await.unwrap();
    delivered(&grid, 0).await;
    assert_eq!(function.kinds("bad"), ["UPDATED", "UPDATED"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn triggers_change_the_object_and_end_at_the_depth() {
    let (function, store) = (Function::default(), Store::memory());
    let (grid, _tasks) = running(&store, &class(&function, &["add", "again"]).await);
    put(&grid, "a", 0).await;
    delivered(&grid, 0).await;
    let id = ObjectId::parse("a").unwrap();
    // Both are called by the client's write; then each by the other, up to five in a chain.
    let count = grid.get(None, &id).await.unwrap().state["count"].clone();
    assert_eq!(count, json!(10));
    add_once(&grid, "a").await;
    delivered(&grid, 0).await;
    assert_eq!(grid.get(None, &id).await.unwrap().state["count"], json!(16));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trigger_changes_the_object_once_even_if_the_next_one_is_refused() {
    let (function, store) = (Function::default(), Store::memory());
    function.refuses.store(true, Ordering::SeqCst);
    let class = class(&function, &["add", "observe"]).await;
    let (grid, tasks) = running(&store, &class);
    let mut watch = store.watch(PARKED, None).await.unwrap();
    put(&grid, "bad", 0).await;
    tokio::time::timeout(Duration::from_mins(1), watch.next()).await.expect("parked").unwrap();
    // Also after a restart.
    drop(tasks);
    let (grid, _tasks) = running(&store, &class);
    function.refuses.store(false, Ordering::SeqCst);
    for event in parked(&grid).await.unwrap() {
        retry(&grid, &event.key).await.unwrap();
    }
    delivered(&grid, 0).await;
    let found = grid.get(None, &ObjectId::parse("bad").unwrap()).await.unwrap();
    assert_eq!(found.state["count"], json!(1));
    assert_eq!(parked(&grid).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_a_deleted_object_stay_before_those_of_a_new_one() {
    let (function, store) = (Function::default(), Store::memory());
    let with_trigger = class(&function, &["observe"]).await;
    let without = Class { triggers: Vec::new(), ..with_trigger.clone() };
    // Nothing is delivered yet.
    let grid = Grid::new(store.clone(), with_trigger.clone());
    put(&grid, "a", 0).await;
    grid.delete(None, &ObjectId::parse("a").unwrap(), Expected::Exists).await.unwrap();
    grid.set_class(without);
    put(&grid, "a", 1).await;
    grid.set_class(with_trigger.clone());
    for number in 2..5 {
        put(&grid, "a", number).await;
    }
    let (grid, _tasks) = running(&store, &with_trigger);
    delivered(&grid, 0).await;
    assert_eq!(function.kinds("a"), ["CREATED", "DELETED", "UPDATED", "UPDATED", "UPDATED"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_another_type_makes_no_event() {
    let (function, store) = (Function::default(), Store::memory());
    let mut class = class(&function, &["observe"]).await;
    class.triggers[0].trigger_type = TriggerType::Delete;
    // Nothing is delivered yet.
    let grid = Grid::new(store.clone(), class.clone());
    put(&grid, "a", 0).await;
    put(&grid, "a", 1).await;
    assert!(grid.store().list(EVENTS).await.unwrap().entries.is_empty());
    let id = ObjectId::parse("a").unwrap();
    grid.delete(None, &id, Expected::Exists).await.unwrap();
    put(&grid, "a", 2).await;
    grid.delete(None, &id, Expected::Exists).await.unwrap();
    assert_eq!(grid.store().list(EVENTS).await.unwrap().entries.len(), 2);
    let (grid, _tasks) = running(&store, &class);
    delivered(&grid, 0).await;
    assert_eq!(function.kinds("a"), ["DELETED", "DELETED"]);
}

async fn slow_class(function: &Function, triggers: Value) -> Class {
    let mut class = class(function, &[]).await;
    let hang = Router::new().route("/", post(async || std::future::pending::<()>().await));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(listener, hang).await.unwrap() });
    let method = json!({"url": url, "access": "PUBLIC"});
    class.methods.insert("hang".to_owned(), serde_json::from_value(method).unwrap());
    class.triggers = serde_json::from_value(triggers).unwrap();
    class
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_hangs_stops_only_its_own_triggers() {
    let (function, store) = (Function::default(), Store::memory());
    let triggers = json!([
        {"method": "hang", "condition": "object.id.startsWith('slow')"},
        {"method": "observe", "condition": "object.id.startsWith('fast')"},
    ]);
    let (grid, _tasks) = running(&store, &slow_class(&function, triggers).await);
    for number in 0..MAX_CALLS + MAX_READS {
        put(&grid, &format!("slow-{number}"), 0).await;
    }
    for number in 0..10 {
        put(&grid, "fast", number).await;
    }
    delivered(&grid, MAX_CALLS + MAX_READS).await;
    assert_eq!(function.kinds("fast").len(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_wait_for_triggers_that_are_not_async() {
    let (function, store) = (Function::default(), Store::memory());
    let class = slow_class(&function, json!([{"method": "observe", "async": false}])).await;
    let (grid, _tasks) = running(&store, &class);
    put(&grid, "a", 0).await;
    assert_eq!(function.kinds("a"), ["CREATED"]);
    let hanging = json!([{"method": "hang", "async": false, "timeoutMs": 50}]);
    grid.set_class(Class { triggers: serde_json::from_value(hanging).unwrap(), ..class });
    let id = ObjectId::parse("a").unwrap();
    let call = Invocation::new(id.clone(), "add", Value::Null, Access::Public);
    let outcome = grid.invoke(&call).await.unwrap();
    assert!(outcome.triggers_pending);
    let found = grid.get(None, &id).await.unwrap();
    assert_eq!((outcome.version, &found.state["count"]), (Some(found.version), &json!(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn triggers_get_changes_in_batches() {
    let (function, store) = (Function::default(), Store::memory());
    let mut class = class(&function, &["observe"]).await;
    class.batch = serde_json::from_value(json!({"size": 4, "timeoutMs": 600_000})).unwrap();
    let (grid, _tasks) = running(&store, &class);
    for number in 0..8 {
        put(&grid, "a", number).await;
    }
    delivered(&grid, 0).await;
    let sizes = |function: &Function| -> Vec<usize> {
        let seen = function.seen.lock();
        seen.iter().map(|it| it["args"]["events"].as_array().unwrap().len()).collect()
    };
    assert_eq!(sizes(&function), [4, 4]);
    let kinds = function.seen.lock()[0]["args"]["events"].clone();
    assert_eq!((&kinds[0]["event"], &kinds[3]["event"]), (&json!("CREATED"), &json!("UPDATED")));
    // A batch that isn't full is delivered when its time has come.
    class.batch = serde_json::from_value(json!({"size": 4, "timeoutMs": 1})).unwrap();
    grid.set_class(class);
    put(&grid, "b", 0).await;
    delivered(&grid, 0).await;
    assert_eq!(sizes(&function), [4, 4, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_select_changes_and_triggers_may_be_macros() {
    let (function, store) = (Function::default(), Store::memory());
    let mut class = class(&function, &[]).await;
    let macros = json!({"both": {"steps": [{"method": "observe"}, {"method": "observe"}]}});
    class.macros = serde_json::from_value(macros).unwrap();
    let triggers = json!([{"method": "both", "condition": "object.state.number > 2"},
        {"method": "observe", "condition": "object.state.missing > 2"}]);
    class.triggers = serde_json::from_value(triggers).unwrap();
    let (grid, _tasks) = running(&store, &class);
    for number in 0..5 {
        put(&grid, "a", number).await;
    }
    delivered(&grid, 0).await;
    // Twice for 3 and 4; and each time for the condition that can't be evaluated.
    let seen = function.seen.lock().clone();
    let of_events = seen.iter().filter(|it| it["args"]["event"].is_string()).count();
    assert_eq!((seen.len(), of_events), (9, 5));
}
