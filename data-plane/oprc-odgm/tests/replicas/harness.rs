//! Nodes of a replicated grid as processes on loopback addresses, each with its etcd.

use std::{
    env, fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, StatusCode};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use oprc_grpc::odgm::{
    GetClusterInfoRequest, GetClusterInfoResponse, InvokeRequest, InvokeResponse,
    data_service_client::DataServiceClient, object_service_client::ObjectServiceClient,
};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;
use tonic::{Status, transport::Endpoint};

use crate::{
    authority::Authority,
    function::Function,
    poll::{LIMIT, Poll},
};

/// The most nodes that a test has.
const MAX_NODES: u8 = 5;
const PORT: u16 = 8081;
const PARTITIONS: u32 = 16;

/// A replicated grid. Its nodes are killed on drop.
pub(crate) struct TestGrid {
    folder: TempDir,
    /// The first bytes of all addresses.
    network: String,
    nodes: Mutex<Vec<Option<Child>>>,
    client: Client<HttpConnector, Full<Bytes>>,
    pub(crate) function: Function,
    keys: AtomicU64,
    authority: Authority,
    quota_bytes: u64,
}

/// Status and body of a response.
pub(crate) type Answer = (StatusCode, Value);

impl TestGrid {
    /// Starts a grid of three nodes and waits until all of them are ready.
    pub(crate) async fn start() -> Arc<Self> {
        Self::start_with_quota(2 << 30).await
    }

    /// The same with a quota of the store.
    pub(crate) async fn start_with_quota(quota_bytes: u64) -> Arc<Self> {
        let grid = Self::prepare(quota_bytes).await;
        grid.set_members(3);
        for index in 0..3 {
            grid.spawn(index);
        }
        for index in 0..3 {
            grid.ready(index).await;
        }
        grid
    }

    async fn prepare(quota_bytes: u64) -> Arc<Self> {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        // Other test processes have other addresses.
        let process = std::process::id() % 250 + 2;
        let network = format!("127.{process}.{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = tempfile::tempdir().unwrap();
        let function = Function::start().await;
        let method = |name: &str| json!({"url": format!("{}/{name}", function.url)});
        let class = json!({
            "name": "counter",
            "methods": {
                "add": method("add"),
                "gated": method("gated"),
                "once": method("once"),
                "note": method("note"),
            },
            "macros": {"walk": {"steps": [{"method": "add"}, {"method": "gated"}, {"method": "add"}]}},
            "triggers": [{"method": "note", "collections": ["Logged"]}],
        });
        fs::write(folder.path().join("class.json"), class.to_string()).unwrap();
        let authority = Authority::new(folder.path().join("tls"));
        authority.issue(hosts(&network));
        Arc::new(Self {
            folder,
            network,
            nodes: Mutex::new((0..MAX_NODES).map(|_| None).collect()),
            client: Client::builder(TokioExecutor::new()).build_http(),
            function,
            keys: AtomicU64::new(0),
            authority,
            quota_bytes,
        })
    }

    pub(crate) fn set_members(&self, members: u32) {
        let path = self.folder.path().join("members.json");
        let new = self.folder.path().join("members.new");
        fs::write(&new, json!({"members": members}).to_string()).unwrap();
        fs::rename(new, path).unwrap();
    }

    pub(crate) fn host(&self, index: usize) -> String {
        format!("{}.1{index}", self.network)
    }

    /// The address of the etcd of a node.
    pub(crate) fn etcd_url(&self, index: usize) -> String {
        format!("http://{}:2379", self.host(index))
    }

    pub(crate) fn tls_dir(&self) -> PathBuf {
        self.folder.path().join("tls")
    }

    /// Replaces the certificate of all nodes.
    pub(crate) fn rotate_certificate(&self) {
        self.authority.issue(hosts(&self.network));
    }

    pub(crate) fn data_dir(&self, index: usize) -> PathBuf {
        self.folder.path().join(format!("data-{index}"))
    }

    pub(crate) fn log(&self, index: usize) -> String {
        fs::read_to_string(self.folder.path().join(format!("log-{index}"))).unwrap_or_default()
    }

    /// Starts the process of a node.
    pub(crate) fn spawn(&self, index: usize) {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let collection = |name| {
            json!({"name": name, "partition_count": PARTITIONS, "shard_type": "raft",
                "persistence_mode": "persistent"})
        };
        let collection = json!([collection("Counter"), collection("Logged")]);
        let host = self.host(index);
        fs::create_dir_all(self.data_dir(index)).unwrap();
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join(format!("log-{index}")))
            .unwrap();
        let variables = [
            ("ODGM_HTTP_PORT", PORT.to_string()),
            ("ODGM_NODE_ID", format!("node-00{index}")),
            ("ODGM_NODE_NAME", format!("counter-{index}")),
            ("ODGM_CLUSTER_ID", "test".to_owned()),
            ("ODGM_NODE_ADDR", format!("http://{host}:{PORT}")),
            ("ODGM_PEER_HOST", format!("{}.1{{index}}", self.network)),
            ("ODGM_BIND_ADDRESS", host.clone()),
            ("ODGM_ETCD_CLIENT_ADDRESS", format!("{host}:2379")),
            ("ODGM_ETCD_QUOTA_BYTES", self.quota_bytes.to_string()),
            ("ODGM_ETCD_PROGRAM", etcd().display().to_string()),
            ("ODGM_COLLECTION", collection.to_string()),
            ("ODGM_DATA_DIR", self.data_dir(index).display().to_string()),
            ("ODGM_CLASS_FILE", path("class.json")),
            ("ODGM_MEMBERS_FILE", path("members.json")),
            ("ODGM_TLS_DIR", path("tls")),
            ("ODGM_LOG", "INFO".to_owned()),
        ];
        let process = Command::new(env!("CARGO_BIN_EXE_oprc-odgm"))
            .env_clear()
            .envs(variables)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.nodes.lock()[index] = Some(process);
    }

    fn pid(&self, index: usize) -> Pid {
        Pid::from_child(self.nodes.lock()[index].as_ref().unwrap())
    }

    /// Kills a node; its etcd dies with it.
    pub(crate) fn kill(&self, index: usize) {
        if let Some(mut process) = self.nodes.lock()[index].take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Stops a node and its etcd: connections stay open, and nothing responds.
    pub(crate) fn freeze(&self, index: usize) {
        for pid in self.processes(index) {
            kill_process(pid, Signal::STOP).unwrap();
        }
    }

    pub(crate) fn thaw(&self, index: usize) {
        for pid in self.processes(index) {
            kill_process(pid, Signal::CONT).unwrap();
        }
    }

    /// The node and its etcd.
    fn processes(&self, index: usize) -> Vec<Pid> {
        let node = self.pid(index);
        let tasks = fs::read_dir(format!("/proc/{}/task", node.as_raw_nonzero())).unwrap();
        let children = tasks.map(|it| fs::read_to_string(it.unwrap().path().join("children")));
        let children = children.map(Result::unwrap_or_default).collect::<Vec<_>>().join(" ");
        let children = children.split_whitespace().map(|it| Pid::from_raw(it.parse().unwrap()));
        [node].into_iter().chain(children.flatten()).collect()
    }

    /// Sends SIGTERM and waits until the node has ended.
    pub(crate) async fn terminate(&self, index: usize) {
        kill_process(self.pid(index), Signal::TERM).unwrap();
        let mut process = self.nodes.lock()[index].take().unwrap();
        let ended = tokio::task::spawn_blocking(move || process.wait().unwrap());
        let status = timeout(LIMIT, ended).await.unwrap().unwrap();
        assert!(status.success(), "{status}: {}", self.log(index));
    }

    /// Waits until the process of a node has ended by itself.
    pub(crate) async fn ended(&self, index: usize) {
        let mut process = self.nodes.lock()[index].take().unwrap();
        let ended = tokio::task::spawn_blocking(move || process.wait().unwrap());
        timeout(LIMIT, ended).await.unwrap().unwrap();
    }

    /// Sends a request to a node. None if there is no answer.
    pub(crate) async fn try_send(
        &self,
        index: usize,
        method: &str,
        path: &str,
        body: &str,
        key: Option<&str>,
    ) -> Option<Answer> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}:{PORT}{path}", self.host(index)));
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
        let exchange = async {
            let response = self.client.request(request).await.ok()?;
            let status = response.status();
            let body = response.into_body().collect().await.ok()?.to_bytes();
            let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
            Some((status, serde_json::from_slice(&body).unwrap_or_else(|_| text())))
        };
        timeout(LIMIT, exchange).await.ok()?
    }

    pub(crate) async fn send(&self, index: usize, method: &str, path: &str, body: &str) -> Answer {
        let answer = self.try_send(index, method, path, body, None).await;
        answer.unwrap_or_else(|| panic!("no answer: {}", self.log(index)))
    }

    /// Calls a method with an idempotency key until the outcome is known.
    pub(crate) async fn call(&self, index: usize, id: &str, method: &str, key: &str) -> Answer {
        let (path, poll) = (format!("/objects/{id}/{method}"), Poll::new());
        loop {
            let answer = self.try_send(index, "POST", &path, "", Some(key)).await;
            let reason = answer.as_ref().and_then(|it| it.1["reason"].as_str());
            let pending = ["RUNNING", "UNKNOWN_OUTCOME", "UNAVAILABLE", "STEP_FAILED"];
            match &answer {
                Some(known) if !reason.is_some_and(|it| pending.contains(&it)) => {
                    return known.clone();
                }
                _ => poll.next(|| format!("{path}: {answer:?}: {}", self.log(index))).await,
            }
        }
    }

    /// Calls `add` with a new idempotency key.
    pub(crate) async fn add(&self, index: usize, id: &str) -> Answer {
        let key = self.new_key();
        let path = format!("/objects/{id}/add");
        let answer = self.try_send(index, "POST", &path, "", Some(&key)).await;
        answer.unwrap_or_else(|| panic!("no answer: {}", self.log(index)))
    }

    pub(crate) fn new_key(&self) -> String {
        format!("key-{}", self.keys.fetch_add(1, Ordering::Relaxed))
    }

    /// The count of an object, as a node reads it.
    pub(crate) async fn count(&self, index: usize, id: &str) -> i64 {
        let (status, object) = self.send(index, "GET", &format!("/objects/{id}"), "").await;
        assert_eq!(status, StatusCode::OK, "{object}");
        object["state"]["count"].as_i64().unwrap()
    }

    /// Creates objects with the count 0.
    pub(crate) async fn create(&self, ids: &[String]) {
        for id in ids {
            let (status, body) =
                self.send(0, "PUT", &format!("/objects/{id}"), r#"{"count": 0}"#).await;
            assert_eq!(status, StatusCode::OK, "{body}");
        }
    }

    pub(crate) async fn cluster_info(&self, index: usize) -> Option<GetClusterInfoResponse> {
        let address = format!("http://{}:{PORT}", self.host(index));
        let endpoint = Endpoint::from_shared(address).unwrap().timeout(Duration::from_secs(5));
        let mut client = DataServiceClient::new(endpoint.connect().await.ok()?);
        Some(client.get_cluster_info(GetClusterInfoRequest {}).await.ok()?.into_inner())
    }

    /// Calls a method by gRPC with a deadline.
    pub(crate) async fn invoke_within(
        &self,
        index: usize,
        id: &str,
        method: &str,
        limit: Duration,
    ) -> Result<InvokeResponse, Status> {
        let address = format!("http://{}:{PORT}", self.host(index));
        let channel = Endpoint::from_shared(address).unwrap().connect().await.unwrap();
        let (id, method) = (id.to_owned(), method.to_owned());
        let mut request =
            tonic::Request::new(InvokeRequest { id, method, ..InvokeRequest::default() });
        request.set_timeout(limit);
        Ok(ObjectServiceClient::new(channel).invoke(request).await?.into_inner())
    }

    /// The state of a node, as another one reports it.
    pub(crate) async fn state_of(&self, reporter: usize, index: usize) -> Option<String> {
        let info = self.cluster_info(reporter).await?;
        let id = format!("node-00{index}");
        info.nodes.into_iter().find(|it| it.node_id == id).map(|it| it.status)
    }

    /// Waits until a condition holds.
    pub(crate) async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let poll = Poll::new();
        while !holds().await {
            let logs = || (0..usize::from(MAX_NODES)).map(|it| self.log(it)).collect::<Vec<_>>();
            poll.next(|| format!("{what}\n{}", logs().join("\n"))).await;
        }
    }

    /// Waits until a node reports itself as active and all partitions have owners.
    pub(crate) async fn ready(&self, index: usize) {
        self.until(&format!("node {index} is ready"), async || {
            let Some(info) = self.cluster_info(index).await else { return false };
            let id = format!("node-00{index}");
            let is_active = info.nodes.iter().any(|it| it.node_id == id && it.status == "active");
            is_active && info.active_shards == info.total_shards
        })
        .await;
    }

    /// Waits until all nodes own partitions.
    pub(crate) async fn balanced(&self) {
        self.until("all nodes own partitions", async || {
            self.cluster_info(0).await.is_some_and(|it| it.balance_score > 0.0)
        })
        .await;
    }

    /// Lines of a stream.
    pub(crate) async fn backup(&self, index: usize) -> Vec<Value> {
        let (status, body) = self.send(index, "POST", "/backup", "").await;
        assert_eq!(status, StatusCode::OK);
        let text = body.as_str().unwrap();
        text.lines().map(|it| serde_json::from_str(it).unwrap()).collect()
    }
}

impl Drop for TestGrid {
    fn drop(&mut self) {
        for process in self.nodes.get_mut().iter_mut().flatten() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// The addresses of all nodes.
fn hosts(network: &str) -> Vec<String> {
    (0..MAX_NODES).map(|it| format!("{network}.1{it}")).collect()
}

/// The etcd that the sandbox has built last.
fn etcd() -> PathBuf {
    if let Some(assets) = env::var_os("KUBEBUILDER_ASSETS").filter(|it| !it.is_empty()) {
        let program = PathBuf::from(assets).join("etcd");
        if program.is_file() {
            return program;
        }
    }
    let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home).expect("a cache");
    let built = fs::read_dir(cache.join("oprc/programs")).into_iter().flatten().flatten();
    let programs = built.map(|it| it.path().join("etcd")).filter(|it| it.is_file());
    let age = |it: &PathBuf| -> Option<SystemTime> { fs::metadata(it).ok()?.modified().ok() };
    programs.max_by_key(age).expect("etcd is missing: `oprc sandbox up` builds one")
}
