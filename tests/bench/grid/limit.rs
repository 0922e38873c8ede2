//! The limit: a server that knows the version and the state of each object, so that it only calls the
//! function and commits the transaction that the grid would. Calls of one object take turns.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Instant};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::HeaderMap,
    routing::{get, post},
};
use bytes::Bytes;
use futures::future::join_all;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use oprc_cp_storage::{Check, EtcdOptions, RedbOptions, Revision, Store, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::{
    load,
    objects::{COLLECTION, fill, id, key, record, state},
};

/// Has the settings of a server.
pub(crate) const VARIABLE: &str = "OPRC_BENCH_LIMIT";
pub(crate) const OBJECTS: usize = 1000;
const RAW_TRANSACTIONS: usize = 200;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) address: SocketAddr,
    /// Its URL.
    pub(crate) function: String,
    pub(crate) engine: Engine,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Engine {
    Memory,
    /// The file.
    Redb(PathBuf),
    /// The endpoint of a member, and the root of this server's keys.
    Etcd(String, String),
}

struct Server {
    store: Store,
    client: Client<HttpConnector, Full<Bytes>>,
    function: String,
    objects: Vec<Mutex<Object>>,
    /// The version of a record that each transaction checks, as nodes check that they own a partition.
    fence: Option<Revision>,
}

struct Object {
    version: Revision,
    state: Value,
    changes: u64,
}

/// Serves until the process is killed.
pub(crate) async fn serve(settings: &str) {
    let Settings { address, function, engine } = serde_json::from_str(settings).unwrap();
    let is_fenced = matches!(engine, Engine::Etcd(..));
    let store = match engine {
        Engine::Memory => Store::memory(),
        Engine::Redb(path) => Store::redb(RedbOptions::new(path, "limit")).await.unwrap(),
        Engine::Etcd(endpoint, root) => {
            Store::etcd(EtcdOptions { root, ..EtcdOptions::new([endpoint]) }).await.unwrap()
        }
    };
    let fence = Transaction::new().put(fence_key(), json!({"node": "limit"}).to_string());
    let fence = if is_fenced { Some(store.commit(fence).await.unwrap()) } else { None };
    fill(&store, 0..OBJECTS).await;
    let mut objects = Vec::new();
    for number in 0..OBJECTS {
        let version = store.get(&key(&id(number))).await.unwrap().unwrap().version;
        objects.push(Mutex::new(Object { version, state: state(0), changes: 0 }));
    }
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let server = Arc::new(Server { store, client, function, objects, fence });
    let router = Router::new()
        .route("/objects/{id}/increment", post(increment))
        .route("/raw/{clients}", post(raw))
        .route("/ready", get(async || ()))
        .with_state(server);
    load::serve(address, router).await;
    std::future::pending::<()>().await;
}

fn fence_key() -> String {
    format!("p/{COLLECTION}/0")
}

async fn increment(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Json<Value> {
    let number: usize = id.rsplit('-').next().unwrap().parse().unwrap();
    let mut object = server.objects[number].lock().await;
    let call = json!({"method": "increment", "args": null,
        "object": {"id": id, "version": object.version.0, "state": object.state}});
    let request = Request::post(&server.function)
        .header("content-type", "application/json")
        .body(Full::from(call.to_string()))
        .unwrap();
    let response = server.client.request(request).await.unwrap();
    let reply = response.into_body().collect().await.unwrap().to_bytes();
    let mut reply: Value = serde_json::from_slice(&reply).unwrap();
    object.state = reply["object"]["state"].take();
    let result = reply["result"].take();
    let is_keyed = headers.contains_key("idempotency-key");
    server.commit(&id, &mut object, is_keyed.then_some(&result)).await;
    Json(result)
}

/// Commits transactions of many objects without calls. Returns how many per second.
async fn raw(State(server): State<Arc<Server>>, Path(clients): Path<usize>) -> Json<f64> {
    let started = Instant::now();
    let clients = (0..clients).map(|client| {
        let server = server.clone();
        tokio::spawn(async move {
            for _ in 0..RAW_TRANSACTIONS {
                let number = fastrand::usize(..OBJECTS);
                let mut object = server.objects[number].lock().await;
                server.commit(&id(number), &mut object, None).await;
            }
            client
        })
    });
    let count = join_all(clients).await.len() * RAW_TRANSACTIONS;
    Json(count as f64 / started.elapsed().as_secs_f64())
}

impl Server {
    /// With the result for the idempotency key, if there is one.
    async fn commit(&self, id: &str, object: &mut Object, result: Option<&Value>) {
        object.changes += 1;
        let (key, record) = (key(id), record(&object.state, object.changes));
        let mut transaction = Transaction::new()
            .check(&key, Check::Version(object.version))
            .put(&key, record.to_string());
        if let Some(result) = result {
            let digest = format!("{:032x}", fastrand::u128(..));
            let key = |period: u32| format!("i/{period:012}/{digest}");
            for period in 0..3 {
                transaction = transaction.check(key(period), Check::Absent);
            }
            let fingerprint = format!("{:032x}", fastrand::u128(..));
            let kept = json!({"fingerprint": fingerprint, "result": result, "at": object.changes});
            transaction = transaction.put(key(1), kept.to_string());
        }
        if let Some(version) = self.fence {
            transaction = transaction.check(fence_key(), Check::Version(version));
        }
        object.version = self.store.commit(transaction).await.unwrap();
    }
}
