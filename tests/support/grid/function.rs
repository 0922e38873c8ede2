//! The functions of the classes in these tests: a server in the test process.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Json, Router,
    extract::{ConnectInfo, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
    routing::post,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

/// A server with the methods `increment` and `observe`. Stops when it is dropped.
#[derive(Debug)]
pub struct Functions {
    address: SocketAddr,
    calls: Calls,
    server: JoinHandle<()>,
}

/// What was called.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// Executions of `increment` by invocation id.
    executions: Arc<Mutex<HashMap<String, u64>>>,
    held: Arc<Mutex<HashMap<String, HeldCall>>>,
    /// Calls of `observe` by object, in this order.
    observed: Arc<Mutex<HashMap<String, Vec<Observed>>>>,
    is_down: Arc<AtomicBool>,
    /// The object whose events `observe` refuses.
    poison: Arc<Mutex<Option<String>>>,
}

/// A call that doesn't get a response before it is released.
#[derive(Debug)]
pub struct Hold {
    /// The address of the caller, once it has called.
    pub caller: oneshot::Receiver<IpAddr>,
    /// Dropped to release the call.
    pub release: oneshot::Sender<()>,
}

#[derive(Debug)]
struct HeldCall {
    caller: oneshot::Sender<IpAddr>,
    released: oneshot::Receiver<()>,
}

/// A call of `observe`.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    pub invocation: String,
    pub call: Value,
}

impl Drop for Functions {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Functions {
    /// Listens on this address; a port of 0 is any.
    pub async fn start(address: SocketAddr) -> Self {
        let calls = Calls::default();
        let router = Router::new()
            .route("/increment", post(increment))
            .route("/observe", post(observe))
            .with_state(calls.clone());
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let server = tokio::spawn(async { axum::serve(listener, service).await.unwrap() });
        Self { address, calls, server }
    }

    /// Listens on this machine only.
    pub async fn local() -> Self {
        Self::start(([127, 0, 0, 1], 0).into()).await
    }

    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    /// The URL of a method.
    pub fn url(&self, method: &str) -> String {
        format!("http://{}/{method}", self.address)
    }

    /// The class document, in which `triggers` are called after each change.
    pub fn class(&self, triggers: &[&str]) -> Value {
        let method = |name: &str| json!({"url": self.url(name)});
        let triggers: Vec<_> = triggers.iter().map(|it| json!({"method": it})).collect();
        json!({
            "name": "counter",
            "collections": [COLLECTION],
            "methods": {"increment": method("increment"), "observe": method("observe")},
            "triggers": triggers,
        })
    }
}

/// The collection of the class.
pub const COLLECTION: &str = "Counter";

impl Calls {
    pub fn executions(&self, invocation: &str) -> u64 {
        self.executions.lock().get(invocation).copied().unwrap_or_default()
    }

    pub fn observed(&self, object: &str) -> Vec<Observed> {
        self.observed.lock().get(object).cloned().unwrap_or_default()
    }

    /// Holds the first execution of `increment` with this invocation id.
    pub fn hold(&self, invocation: &str) -> Hold {
        let ((caller, its_caller), (release, released)) = (oneshot::channel(), oneshot::channel());
        self.held.lock().insert(invocation.to_owned(), HeldCall { caller, released });
        Hold { caller: its_caller, release }
    }

    /// Whether `observe` responds with an error that passes.
    pub fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::SeqCst);
    }

    /// The object whose events `observe` refuses.
    pub fn set_poison(&self, object: Option<&str>) {
        *self.poison.lock() = object.map(str::to_owned);
    }
}

fn invocation(headers: &HeaderMap) -> String {
    let id = headers.get("oprc-invocation-id").expect("an invocation id");
    id.to_str().unwrap().to_owned()
}

async fn increment(
    State(calls): State<Calls>,
    ConnectInfo(caller): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Json(mut call): Json<Value>,
) -> Json<Value> {
    let invocation = invocation(&headers);
    let held = calls.held.lock().remove(&invocation);
    *calls.executions.lock().entry(invocation).or_default() += 1;
    if let Some(held) = held {
        let _ = held.caller.send(caller.ip());
        let _ = held.released.await;
    }
    let by = call["args"]["by"].as_u64().unwrap();
    let mut state = call["object"]["state"].take();
    let count = state["count"].as_u64().unwrap_or_default() + by;
    state["count"] = json!(count);
    Json(json!({"object": {"state": state}, "result": count}))
}

async fn observe(
    State(calls): State<Calls>,
    headers: HeaderMap,
    Json(call): Json<Value>,
) -> Response {
    let object = call["object"]["id"].as_str().unwrap().to_owned();
    if calls.is_down.load(Ordering::SeqCst) {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    if calls.poison.lock().as_ref() == Some(&object) {
        return (StatusCode::UNPROCESSABLE_ENTITY, "poison").into_response();
    }
    let observed = Observed { invocation: invocation(&headers), call };
    calls.observed.lock().entry(object).or_default().push(observed);
    Json(json!({})).into_response()
}
