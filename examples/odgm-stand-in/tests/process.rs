//! Runs the stand-in as a process: responses and exit.

#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use oprc_grpc::odgm::{
    GetClusterInfoRequest, GetCollectionStatusRequest, data_service_client::DataServiceClient,
};
use tonic::{
    Code,
    transport::{Channel, Endpoint},
};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

const TIMEOUT: Duration = Duration::from_secs(20);

/// A running stand-in, killed at the end of the test.
struct StandIn {
    process: Child,
    port: u16,
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn command(port: u16) -> Command {
    let collection = r#"{"name": "c", "partition_count": 4,
        "shard_type": "raft", "persistence_mode": "persistent", "access_patterns": []}"#;
    let mut command = Command::new(env!("CARGO_BIN_EXE_odgm-stand-in"));
    command.env("ODGM_HTTP_PORT", port.to_string());
    command.env("ODGM_NODE_ADDR", format!("http://grid-0:{port}"));
    command.env("ODGM_COLLECTION", format!("[{collection}]"));
    command.env_remove("container").envs([
        ("ODGM_NODE_ID", "grid-0"),
        ("ODGM_COLLECTIONS", "c"),
        ("ODGM_CLUSTER_ID", "grid"),
        ("ODGM_LOG", "info"),
        ("ODGM_CLASS_FILE", "/etc/odgm/class.json"),
    ]);
    command
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

impl StandIn {
    fn start(variables: &[(&str, &str)]) -> Self {
        // Another test may have taken a free port.
        (0..5).find_map(|_| Self::try_start(variables)).expect("the stand-in does not listen")
    }

    fn try_start(variables: &[(&str, &str)]) -> Option<Self> {
        let port = free_port();
        let mut command = command(port);
        command.envs(variables.iter().copied()).stdout(Stdio::piped());
        let mut stand_in = Self { process: command.spawn().unwrap(), port };
        let mut line = String::new();
        BufReader::new(stand_in.process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        line.starts_with("listening").then_some(stand_in)
    }

    async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{}", self.port)).unwrap();
        endpoint.timeout(TIMEOUT).connect().await.unwrap()
    }

    fn terminate(&self) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }
}

async fn health(channel: &Channel, service: &str) -> ServingStatus {
    let request = HealthCheckRequest { service: service.to_owned() };
    HealthClient::new(channel.clone()).check(request).await.unwrap().into_inner().status()
}

#[tokio::test]
async fn serves_health_status_and_metrics() {
    let stand_in = StandIn::start(&[]);
    let channel = stand_in.channel().await;
    for service in ["", "odgm", "live", "ready"] {
        assert_eq!(health(&channel, service).await, ServingStatus::Serving);
    }

    let mut client = DataServiceClient::new(channel);
    let info = client.get_cluster_info(GetClusterInfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.cluster_id.as_str(), info.leader_node.as_str()), ("grid", "grid-0"));
    assert_eq!((info.total_shards, info.active_shards, info.current_term), (4, 4, 1));
    let nodes: Vec<_> = info.nodes.iter().map(|node| (&*node.node_id, &*node.address)).collect();
    assert_eq!(nodes, [("grid-0", &*format!("http://grid-0:{}", stand_in.port))]);
    assert!(info.nodes.iter().all(|node| node.status == "active"));

    let named = |name: &str| GetCollectionStatusRequest { collection_name: name.to_owned() };
    let status = client.get_collection_status(named("c")).await.unwrap().into_inner();
    assert_eq!((status.partition_count, status.active_partitions), (4, 4));
    let unknown = client.get_collection_status(named("d")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);

    let mut metrics = TcpStream::connect((Ipv4Addr::LOCALHOST, stand_in.port)).unwrap();
    write!(metrics, "GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut response = String::new();
    metrics.read_to_string(&mut response).unwrap();
    assert!(response.contains("200 OK") && response.contains("\nodgm_up 1\n"), "{response}");
}

#[tokio::test]
async fn becomes_ready_when_the_file_exists_and_exits_with_open_watches() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().to_str().unwrap(), dir.path().join("ready"));
    let mut stand_in = StandIn::start(&[
        ("ODGM_DATA_DIR", data),
        ("STAND_IN_UNREADY_UNTIL", file.to_str().unwrap()),
    ]);
    assert!(fs::read_to_string(dir.path().join("node")).unwrap().starts_with("grid-0\n"));
    let channel = stand_in.channel().await;
    let request = HealthCheckRequest { service: "odgm".to_owned() };
    let mut health = HealthClient::new(channel).watch(request).await.unwrap().into_inner();
    let mut next = async || health.message().await.unwrap().unwrap().status();
    assert_eq!(next().await, ServingStatus::NotServing);
    fs::write(&file, "").unwrap();
    assert_eq!(next().await, ServingStatus::Serving);
    stand_in.terminate();
    let started = Instant::now();
    assert_eq!(next().await, ServingStatus::NotServing);
    // The watch is still open.
    assert!(stand_in.process.wait().unwrap().success());
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[test]
fn exits_immediately_without_open_calls() {
    // Open calls get 2 s. A busy machine may delay a single attempt as long.
    let immediately = |_| {
        let mut stand_in = StandIn::start(&[]);
        let started = Instant::now();
        stand_in.terminate();
        assert!(stand_in.process.wait().unwrap().success());
        started.elapsed() < Duration::from_secs(2)
    };
    assert!((0..5).any(immediately));
}

#[test]
fn exit_status_tells_invalid_variables_from_crashes() {
    let run = |name, value| {
        let port = free_port();
        let output = command(port).env(name, value).stderr(Stdio::piped()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, error) = run("ODGM_LOG", "");
    assert_eq!((code, error.lines().count()), (Some(2), 1), "{error}");
    assert!(error.contains("ODGM_LOG"), "{error}");
    assert_eq!(run("ODGM_DATA_DIR", "/missing").0, Some(2));
    assert_eq!(run("STAND_IN_EXIT_AFTER_MS", "10").0, Some(1));
}
