//! A node as a whole: its port, its file about the class, and its data after a restart.

#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use axum::{Json, Router, routing::post};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, StatusCode};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use oprc_grpc::odgm::{GetCollectionStatusRequest, data_service_client::DataServiceClient};
use oprc_odgm::{
    config::{Collection, Config, Persistence, ShardType},
    node::{Node, host},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle, time::timeout};
use tonic::transport::Endpoint;

const LIMIT: Duration = Duration::from_secs(20);

/// A function that adds one to `count`.
async fn function() -> String {
    let add = async |Json(call): Json<Value>| {
        let count = call["object"]["state"]["count"].as_i64().unwrap_or_default() + 1;
        Json(json!({"object": {"state": {"count": count}}, "result": count}))
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/", post(add));
    tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
    url
}

struct Running {
    address: SocketAddr,
    admin_address: SocketAddr,
    public_address: SocketAddr,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

fn publish(folder: &Path, url: &str, methods: &[&str]) -> PathBuf {
    let methods = methods.iter().map(|name| (String::from(*name), json!({"url": url})));
    let methods: serde_json::Map<_, _> = methods.collect();
    let class = json!({"name": "counter", "methods": methods});
    fs::write(folder.join("class.new"), class.to_string()).unwrap();
    fs::rename(folder.join("class.new"), folder.join("class.json")).unwrap();
    folder.join("class.json")
}

async fn start(folder: &Path) -> Running {
    let config = Config {
        http_port: 0,
        public_port: 0,
        admin_address: (host(false), 0).into(),
        node_id: "node-000".to_owned(),
        cluster_id: "test".to_owned(),
        address: "http://127.0.0.1".to_owned(),
        collections: vec![Collection {
            name: "Counter".to_owned(),
            partition_count: 4,
            shard_type: ShardType::Basic,
            persistence_mode: Persistence::Persistent,
        }],
        data_dir: folder.to_owned(),
        class_file: folder.join("class.json"),
        log: "INFO".to_owned(),
        bind_address: None,
        replica: None,
    };
    let node = Node::open(config, host(false)).await.unwrap();
    let (stop, stopped) = oneshot::channel();
    let (address, admin_address) = (node.address(), node.admin_address());
    let public_address = node.public_address();
    let ended = tokio::spawn(async { node.run(async { drop(stopped.await) }).await.unwrap() });
    Running { address, admin_address, public_address, stop, ended }
}

impl Running {
    async fn send(&self, method: &str, path: &str, body: &str) -> (StatusCode, Value) {
        Self::send_to(self.address, method, path, body).await
    }

    async fn send_to(
        address: SocketAddr,
        method: &str,
        path: &str,
        body: &str,
    ) -> (StatusCode, Value) {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{address}{path}"))
            .body(Full::new(Bytes::from(body.to_owned())))
            .unwrap();
        let client = Client::builder(TokioExecutor::new()).build_http();
        let response = timeout(LIMIT, client.request(request)).await.unwrap().unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn count(&self) -> u64 {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        let mut client = DataServiceClient::new(endpoint.connect().await.unwrap());
        let request = GetCollectionStatusRequest { collection_name: "Counter".to_owned() };
        client.get_collection_status(request).await.unwrap().into_inner().total_objects
    }

    async fn stop(self) {
        drop(self.stop);
        timeout(LIMIT, self.ended).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_survive_a_restart_and_methods_change_without_one() {
    let (folder, url) = (tempfile::tempdir().unwrap(), function().await);
    publish(folder.path(), &url, &["add"]);
    let node = start(folder.path()).await;
    for id in ["a", "b"] {
        let (status, _) = node.send("PUT", &format!("/objects/{id}"), r#"{"count": 0}"#).await;
        assert_eq!(status, StatusCode::OK);
    }
    assert_eq!(node.send("POST", "/objects/a/add", "").await, (StatusCode::OK, json!(1)));
    assert_eq!(node.send("POST", "/objects/a/more", "").await.0, StatusCode::NOT_FOUND);
    assert_eq!(node.count().await, 2);
    publish(folder.path(), &url, &["add", "more"]);
    let changed = async {
        while node.send("POST", "/objects/a/more", "").await.0 == StatusCode::NOT_FOUND {
            tokio::task::yield_now().await;
        }
    };
    timeout(LIMIT, changed).await.unwrap();
    node.stop().await;
    let node = start(folder.path()).await;
    assert_eq!(node.send("POST", "/objects/a/add", "").await, (StatusCode::OK, json!(3)));
    assert_eq!(node.count().await, 2);
    assert_eq!(node.send("DELETE", "/objects/b", "").await.0, StatusCode::NO_CONTENT);
    assert_eq!(node.count().await, 1);
    assert_eq!(node.send("GET", "/other", "").await.0, StatusCode::NOT_FOUND);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_data_leaves_a_node_by_its_admin_port_only() {
    let folder = tempfile::tempdir().unwrap();
    let class = json!({"name": "counter", "dataAccess": "PRIVATE"});
    fs::write(folder.path().join("class.json"), class.to_string()).unwrap();
    let node = start(folder.path()).await;
    assert!(node.admin_address.ip().is_loopback());
    for address in [node.address, node.public_address] {
        for (method, path) in [("GET", "/objects"), ("POST", "/backup"), ("POST", "/restore")] {
            let (status, _) = Running::send_to(address, method, path, "").await;
            let is_refused = matches!(status, StatusCode::FORBIDDEN | StatusCode::NOT_FOUND);
            assert!(is_refused, "{address} {method} {path}: {status}");
        }
    }
    let (status, _) = Running::send_to(node.admin_address, "POST", "/backup", "").await;
    assert_eq!(status, StatusCode::OK);
    node.stop().await;
}
