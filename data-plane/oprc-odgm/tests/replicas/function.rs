//! The functions of the class: a server in the test process.

use std::{collections::HashSet, sync::Arc};

use axum::{Json, Router, extract::State, http::HeaderMap, routing::post};
use hyper::StatusCode;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, time::timeout};

use crate::poll::LIMIT;

/// The count of an object that was deleted.
pub(crate) const DELETED: i64 = -1;

/// The functions of the class. `add` counts, and `gated` counts after the gate has opened. `once` is like
/// `gated`, but refuses a call that it gets again.
#[derive(Clone)]
pub(crate) struct Function {
    pub(crate) url: String,
    gate: watch::Sender<bool>,
    waiting: watch::Sender<usize>,
    /// Calls of `once`, by invocation id.
    begun: Arc<Mutex<HashSet<String>>>,
    /// Events that triggers got: the object and its count. None are accepted until the gate opens.
    noted: Arc<Mutex<Vec<(String, i64)>>>,
}

impl Function {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let function = Self {
            url,
            gate: watch::Sender::new(false),
            waiting: watch::Sender::new(0),
            begun: Arc::default(),
            noted: Arc::default(),
        };
        let add = async |Json(call): Json<Value>| Json(added(&call));
        let note = async |State(own): State<Function>, Json(call): Json<Value>| {
            if !*own.gate.borrow() {
                return Err(StatusCode::SERVICE_UNAVAILABLE);
            }
            let count = call["object"]["state"]["count"].as_i64().unwrap_or(DELETED);
            own.noted.lock().push((call["object"]["id"].as_str().unwrap().to_owned(), count));
            Ok(Json(json!({})))
        };
        let router = Router::new()
            .route("/note", post(note))
            .route("/add", post(add))
            .route("/gated", post(gated))
            .route("/once", post(once))
            .with_state(function.clone());
        tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
        function
    }

    /// Waits until so many calls wait at the gate.
    pub(crate) async fn waiting(&self, count: usize) {
        let mut waiting = self.waiting.subscribe();
        timeout(LIMIT, waiting.wait_for(|it| *it >= count)).await.unwrap().unwrap();
    }

    pub(crate) fn noted(&self) -> Vec<(String, i64)> {
        self.noted.lock().clone()
    }

    pub(crate) fn open_gate(&self) {
        self.gate.send_replace(true);
    }
}

fn added(call: &Value) -> Value {
    let count = call["object"]["state"]["count"].as_i64().unwrap_or_default() + 1;
    json!({"object": {"state": {"count": count}}, "result": count})
}

async fn gated(State(own): State<Function>, Json(call): Json<Value>) -> Json<Value> {
    own.waiting.send_modify(|it| *it += 1);
    own.gate.subscribe().wait_for(|it| *it).await.unwrap();
    Json(added(&call))
}

async fn once(
    State(own): State<Function>,
    headers: HeaderMap,
    call: Json<Value>,
) -> Result<Json<Value>, StatusCode> {
    let invocation = headers["oprc-invocation-id"].to_str().unwrap().to_owned();
    let is_first = own.begun.lock().insert(invocation);
    if is_first { Ok(gated(State(own), call).await) } else { Err(StatusCode::UNPROCESSABLE_ENTITY) }
}
