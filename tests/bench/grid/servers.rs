//! The processes that are measured: nodes of a grid, and servers of the limit.

use std::{
    env, fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};

use futures::StreamExt as _;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::{Request, body::Frame};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use oprc_cp_storage::{EtcdOptions, RedbOptions, Store};
use oprc_tests::{certificate_authority::Authority, etcd, eventually, process::Running, program};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    limit,
    load::{self, Workload},
    objects::{self, COLLECTION},
};

const PORT: u16 = 8081;
const ETCD_PORT: u16 = 2379;
const PARTITIONS: u32 = 16;
const REPLICAS: u8 = 3;
const READY_TIMEOUT: Duration = Duration::from_mins(1);
/// The root of the grid's keys in etcd.
const ROOT: &str = "grid";

/// Where objects are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Memory,
    Redb,
    /// Three members.
    Etcd,
}

impl Engine {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redb => "redb",
            Self::Etcd => "etcd",
        }
    }
}

/// Processes that serve the same calls.
pub(crate) struct Servers {
    // Dropped before their folder.
    processes: Vec<Running>,
    addresses: Vec<SocketAddr>,
    /// Whether all serve the same objects.
    is_grid: bool,
    _folder: Option<TempDir>,
}

/// The figures of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Calls per second.
    pub(crate) rate: f64,
    /// In milliseconds.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// Of all processes, in microseconds per call.
    pub(crate) cpu: f64,
}

impl Servers {
    /// Starts the nodes of a grid with so many objects.
    pub(crate) async fn grid(engine: Engine, function: &str, objects: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let class = json!({"name": "counter", "methods": {"increment": {"url": function}}});
        fs::write(path.join("class.json"), class.to_string()).unwrap();
        let count = if engine == Engine::Etcd { REPLICAS } else { 1 };
        fs::write(path.join("members.json"), json!({"members": count}).to_string()).unwrap();
        let network = network();
        let hosts: Vec<_> = (0..count).map(|it| host(network, it)).collect();
        write_certificates(&path.join("tls"), &hosts);
        for node in 0..count {
            fs::create_dir_all(path.join(format!("data-{node}"))).unwrap();
        }
        if engine == Engine::Redb {
            let file = path.join("data-0/grid.redb");
            let store = Store::redb(RedbOptions::new(file, "bench")).await.unwrap();
            objects::fill(&store, 0..objects).await;
            store.close().await;
        }
        let start = |node: &Ipv4Addr| Running::start(&mut command(path, engine, *node, network));
        let processes = hosts.iter().map(start).collect();
        let addresses: Vec<_> =
            hosts.iter().map(|it| SocketAddr::new((*it).into(), PORT)).collect();
        let servers = Self { processes, addresses, is_grid: true, _folder: Some(folder) };
        servers.ready("/objects?limit=1").await;
        match engine {
            Engine::Memory => servers.restore(objects).await,
            Engine::Redb => {}
            Engine::Etcd => servers.fill(objects).await,
        }
        servers
    }

    /// Starts servers of the limit; those of etcd use the members of the grid.
    pub(crate) async fn limit(engine: Engine, function: &str, grid: &Self) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let network = network();
        let (mut processes, mut addresses) = (Vec::new(), Vec::new());
        for (index, node) in (0..).zip(&grid.addresses) {
            let address = SocketAddr::new(host(network, index).into(), PORT);
            let engine = match engine {
                Engine::Memory => limit::Engine::Memory,
                Engine::Redb => limit::Engine::Redb(folder.path().join("limit.redb")),
                Engine::Etcd => limit::Engine::Etcd(etcd_endpoint(*node), format!("limit-{index}")),
            };
            let settings = limit::Settings { address, function: function.to_owned(), engine };
            let mut command = Command::new(env::current_exe().unwrap());
            command.env(limit::VARIABLE, serde_json::to_string(&settings).unwrap());
            processes.push(Running::start(&mut command));
            addresses.push(address);
        }
        let servers = Self { processes, addresses, is_grid: false, _folder: Some(folder) };
        servers.ready("/ready").await;
        servers
    }

    async fn ready(&self, path: &str) {
        for address in &self.addresses {
            eventually(&format!("http://{address}"), READY_TIMEOUT, || async move {
                let mut sender = load::connect(*address).await?;
                let request = Request::get(path).header("host", "bench");
                load::send(&mut sender, request.body(Full::default()).unwrap()).await
            })
            .await;
        }
    }

    async fn restore(&self, objects: usize) {
        let lines = objects::backup(objects).map(|it| Ok::<_, hyper::Error>(Frame::data(it)));
        let client = Client::builder(TokioExecutor::new()).build_http();
        let address = self.addresses[0];
        let request = Request::post(format!("http://{address}/restore"));
        let response = client.request(request.body(StreamBody::new(lines)).unwrap()).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(status.is_success(), "{}", String::from_utf8_lossy(&body));
    }

    /// Creates objects in etcd.
    async fn fill(&self, objects: usize) {
        let options = EtcdOptions::new([etcd_endpoint(self.addresses[0])]);
        let store = Store::etcd(EtcdOptions { root: ROOT.to_owned(), ..options }).await.unwrap();
        objects::fill(&store, 0..objects).await;
    }

    /// Resident memory of each process and its etcd, in megabytes: the most.
    pub(crate) fn resident(&self) -> f64 {
        self.processes.iter().map(Running::resident).fold(0.0, f64::max)
    }

    fn cpu(&self) -> Duration {
        self.processes.iter().map(Running::cpu).sum()
    }

    /// CPU time is that of these processes and of those that they use.
    pub(crate) async fn measure(&self, workload: Workload, used: Option<&Self>) -> Sample {
        let shared = if self.is_grid || workload.objects > 1 { self.addresses.len() } else { 1 };
        let cpu = || self.cpu() + used.map(Self::cpu).unwrap_or_default();
        let before = cpu();
        let (latencies, took) = load::run(&self.addresses[..shared], workload).await;
        let (count, cpu) = (latencies.len() as f64, cpu().saturating_sub(before));
        let part = |part: f64| latencies[(count * part) as usize].as_secs_f64() * 1e3;
        Sample {
            rate: count / took.as_secs_f64(),
            p50: part(0.5),
            p99: part(0.99),
            cpu: cpu.as_secs_f64() * 1e6 / count,
        }
    }

    /// Transactions per second of the limit's stores, without calls.
    pub(crate) async fn raw(&self, clients: usize) -> f64 {
        let rates = self.addresses.iter().map(async |address| {
            let mut sender = load::connect(*address).await.unwrap();
            let clients = clients.div_ceil(self.addresses.len());
            let request = Request::post(format!("/raw/{clients}")).header("host", "bench");
            let request = request.body(Full::default()).unwrap();
            let rate = load::send(&mut sender, request).await.unwrap();
            serde_json::from_slice::<f64>(&rate).unwrap()
        });
        futures::future::join_all(rates).await.into_iter().sum()
    }
}

/// The second and third byte of loopback addresses that nothing else uses.
fn network() -> [u8; 2] {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let process = u8::try_from(std::process::id() % 250).unwrap() + 2;
    [process, NEXT.fetch_add(1, Ordering::Relaxed)]
}

fn host([second, third]: [u8; 2], index: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, second, third, 10 + index)
}

fn etcd_endpoint(node: SocketAddr) -> String {
    format!("http://{}:{ETCD_PORT}", node.ip())
}

/// One certificate for all nodes.
fn write_certificates(folder: &Path, hosts: &[Ipv4Addr]) {
    let authority = Authority::new(folder);
    let hosts: Vec<_> = hosts.iter().map(Ipv4Addr::to_string).collect();
    let hosts: Vec<_> = hosts.iter().map(String::as_str).collect();
    let (certificate, key) = authority.issue("node", &hosts);
    fs::rename(authority.certificate(), folder.join("ca.crt")).unwrap();
    fs::rename(certificate, folder.join("tls.crt")).unwrap();
    fs::rename(key, folder.join("tls.key")).unwrap();
}

/// The command of a node, whose index is in its address.
fn command(folder: &Path, engine: Engine, address: Ipv4Addr, [second, third]: [u8; 2]) -> Command {
    let index = address.octets()[3] % 10;
    let (shard_type, persistence) = match engine {
        Engine::Memory => ("basic", "ephemeral"),
        Engine::Redb => ("basic", "persistent"),
        Engine::Etcd => ("raft", "persistent"),
    };
    let collection = json!([{"name": COLLECTION, "partition_count": PARTITIONS,
        "shard_type": shard_type, "persistence_mode": persistence}]);
    let file = |name: &str| folder.join(name).display().to_string();
    let log = fs::File::create(folder.join(format!("log-{index}"))).unwrap();
    let mut command = Command::new(program("oprc-odgm"));
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).envs([
        ("ODGM_HTTP_PORT", PORT.to_string()),
        ("ODGM_NODE_ID", format!("node-00{index}")),
        ("ODGM_NODE_NAME", format!("counter-{index}")),
        ("ODGM_CLUSTER_ID", "bench".to_owned()),
        ("ODGM_NODE_ADDR", format!("http://{address}:{PORT}")),
        ("ODGM_PEER_HOST", format!("127.{second}.{third}.1{{index}}")),
        ("ODGM_BIND_ADDRESS", address.to_string()),
        ("ODGM_ETCD_CLIENT_ADDRESS", format!("{address}:{ETCD_PORT}")),
        ("ODGM_ETCD_PROGRAM", etcd::program().display().to_string()),
        ("ODGM_COLLECTION", collection.to_string()),
        ("ODGM_DATA_DIR", file(&format!("data-{index}"))),
        ("ODGM_CLASS_FILE", file("class.json")),
        ("ODGM_MEMBERS_FILE", file("members.json")),
        ("ODGM_TLS_DIR", file("tls")),
        ("ODGM_LOG", "WARN".to_owned()),
    ]);
    command
}
