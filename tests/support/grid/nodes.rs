//! The nodes of a grid: one with its objects in a file, or several that replicate them.

use std::{
    env, fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

use super::{
    client::Client,
    disk::Disk,
    function::{COLLECTION, Functions},
    network::Network,
    node::NodeProcess,
};
use crate::{certificate_authority::Authority, etcd::free_port, program};

const READY_TIMEOUT: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const PARTITIONS: u32 = 16;
const HTTP_PORT: u16 = 8081;
const SINGLE_DISK_MEBIBYTES: usize = 32;
/// etcd reserves two files of 64 MiB for its log.
const REPLICA_DISK_MEBIBYTES: usize = 200;

/// The nodes of a grid. Their data and logs are deleted on drop, unless the test fails.
#[derive(Debug)]
pub struct Nodes {
    // Dropped in this order: processes use the rest.
    pub processes: Vec<NodeProcess>,
    pub functions: Functions,
    pub disks: Vec<Disk>,
    /// None for a single node.
    pub network: Option<Network>,
    folder: Folder,
}

#[derive(Debug)]
struct Folder(Option<TempDir>);

impl Folder {
    fn path(&self) -> &Path {
        self.0.as_ref().expect("a folder").path()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Some(folder) = self.0.take()
            && std::thread::panicking()
        {
            eprintln!("logs of the nodes: {}", folder.keep().display());
        }
    }
}

impl Nodes {
    /// One node with its objects in a file; `triggers` are called after each change.
    pub async fn single(triggers: &[&str]) -> Self {
        let folder = Folder(Some(tempfile::tempdir().unwrap()));
        let functions = Functions::local().await;
        write_json(folder.path(), "class.json", &functions.class(triggers));
        let disk = Disk::mount(folder.path().join("data-0"), SINGLE_DISK_MEBIBYTES);
        let port = free_port();
        let url = format!("http://127.0.0.1:{port}");
        let mut variables = common_variables(folder.path(), 0, "basic");
        variables.push(("ODGM_HTTP_PORT", port.to_string()));
        variables.push(("ODGM_NODE_ADDR", url.clone()));
        let log = folder.path().join("log-0");
        let process = NodeProcess::start(url, log, move || {
            let mut command = Command::new(program("oprc-odgm"));
            command.env_clear().envs(variables.iter().cloned());
            command
        });
        let nodes =
            Self { processes: vec![process], functions, disks: vec![disk], network: None, folder };
        nodes.ready().await;
        nodes
    }

    /// Nodes that replicate their objects, each with a network and a disk of its own, and with this
    /// program as etcd.
    pub async fn replicated(count: u8, triggers: &[&str], etcd: &Path) -> Self {
        let folder = Folder(Some(tempfile::tempdir().unwrap()));
        let network = Network::create(count);
        let functions = Functions::start((network.host(), 0).into()).await;
        write_json(folder.path(), "class.json", &functions.class(triggers));
        write_json(folder.path(), "members.json", &json!({"members": count}));
        write_certificates(&folder.path().join("tls"), &network, count);
        let (mut processes, mut disks) = (Vec::new(), Vec::new());
        for node in 0..count {
            let path = folder.path().join(format!("data-{node}"));
            disks.push(Disk::mount(path, REPLICA_DISK_MEBIBYTES));
            let url = format!("http://{}:{HTTP_PORT}", network.address(node));
            let mut variables = common_variables(folder.path(), node, "raft");
            let file = |name: &str| folder.path().join(name).display().to_string();
            variables.extend([
                ("ODGM_HTTP_PORT", HTTP_PORT.to_string()),
                ("ODGM_NODE_ADDR", url.clone()),
                ("ODGM_NODE_NAME", format!("grid-{node}")),
                ("ODGM_BIND_ADDRESS", network.address(node).to_string()),
                ("ODGM_PEER_HOST", network.address_pattern()),
                ("ODGM_ETCD_PROGRAM", etcd.display().to_string()),
                ("ODGM_TLS_DIR", file("tls")),
                ("ODGM_MEMBERS_FILE", file("members.json")),
            ]);
            let exec = network.exec_arguments(node);
            let log = folder.path().join(format!("log-{node}"));
            processes.push(NodeProcess::start(url, log, move || {
                let mut command = Command::new("ip");
                command.args(&exec).arg(program("oprc-odgm"));
                command.env_clear().envs(env::var_os("PATH").map(|path| ("PATH", path)));
                command.envs(variables.iter().cloned());
                command
            }));
        }
        let nodes = Self { processes, functions, disks, network: Some(network), folder };
        nodes.ready().await;
        nodes
    }

    pub fn urls(&self) -> Vec<String> {
        self.processes.iter().map(|it| it.url.clone()).collect()
    }

    /// Waits until all nodes serve requests.
    pub async fn ready(&self) {
        for process in &self.processes {
            self.serves(process).await;
        }
    }

    /// Waits until a node serves requests.
    pub async fn serves(&self, process: &NodeProcess) {
        let (client, started) = (Client::default(), Instant::now());
        let url = format!("{}/objects?limit=1", process.url);
        loop {
            let response = client.get(&url).await;
            if matches!(&response, Ok((status, _)) if status.is_success()) {
                return;
            }
            let folder = self.folder.path().display();
            assert!(started.elapsed() < READY_TIMEOUT, "{url}: {response:?}, logs: {folder}");
            sleep(POLL_INTERVAL).await;
        }
    }
}

fn write_json(folder: &Path, name: &str, value: &Value) {
    fs::write(folder.join(name), value.to_string()).unwrap();
}

/// One certificate for all nodes.
fn write_certificates(folder: &Path, network: &Network, nodes: u8) {
    let authority = Authority::new(folder);
    let hosts: Vec<_> = (0..nodes).map(|node| network.address(node).to_string()).collect();
    let hosts: Vec<_> = hosts.iter().map(String::as_str).collect();
    let (certificate, key) = authority.issue("node", &hosts);
    fs::rename(authority.certificate(), folder.join("ca.crt")).unwrap();
    fs::rename(certificate, folder.join("tls.crt")).unwrap();
    fs::rename(key, folder.join("tls.key")).unwrap();
}

fn common_variables(folder: &Path, node: u8, shard_type: &str) -> Vec<(&'static str, String)> {
    let collection = json!([{
        "name": COLLECTION,
        "partition_count": PARTITIONS,
        "replica_count": 1,
        "shard_type": shard_type,
        "persistence_mode": "persistent",
    }]);
    let file = |name: &str| folder.join(name).display().to_string();
    vec![
        ("ODGM_NODE_ID", format!("test-00{node}")),
        ("ODGM_CLUSTER_ID", "test".to_owned()),
        ("ODGM_COLLECTION", collection.to_string()),
        ("ODGM_CLASS_FILE", file("class.json")),
        ("ODGM_DATA_DIR", file(&format!("data-{node}"))),
        ("ODGM_LOG", "INFO".to_owned()),
    ]
}
