//! Overhead of the proxy in front of functions: 1,000 calls per second directly, through it, and
//! through Knative's queue-proxy.
//!
//! All programs run in a network namespace of their own, because queue-proxy listens on all addresses.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used
)]

use std::{
    env,
    net::Ipv4Addr,
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::{Request, client::conn::http1};
use hyper_util::rt::TokioIo;
use oprc_tests::{eventually, process::Running, program};
use tokio::{net::TcpStream, task::JoinSet};

/// Set in the network namespace.
const INSIDE: &str = "OPRC_BENCH_INSIDE";
const CONNECTIONS: u32 = 10;
const PER_SECOND: u32 = 1000;
const SECONDS: u32 = 5;
const ROUNDS: usize = 5;
const FUNCTION: u16 = 8080;
const PROXY: u16 = 18080;
const QUEUE_PROXY: u16 = 8012;
const MAX_RESIDENT_MB: f64 = 10.0;

fn main() -> ExitCode {
    if env::var_os(INSIDE).is_some() {
        return inside();
    }
    let queue_proxy = oprc_sandbox::queue_proxy().expect("Knative's queue-proxy");
    let status = Command::new("unshare")
        .args(["--net", "sh", "-c", "ip link set lo up && exec \"$0\""])
        .arg(env::current_exe().unwrap())
        .env(INSIDE, queue_proxy)
        .status()
        .expect("unshare, as root");
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn start(command: &mut Command) -> Running {
    Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

#[tokio::main]
async fn inside() -> ExitCode {
    let function = start(Command::new(program("hello-fn")).env("PORT", FUNCTION.to_string()));
    let mut command = Command::new(program("oprc-proxy"));
    let proxy = start(command.env("OPRC_PROXY_APP_PORT", FUNCTION.to_string()));
    let queue_proxy = start(&mut queue_proxy_command());
    for port in [FUNCTION, PROXY, QUEUE_PROXY] {
        eventually("a response", Duration::from_secs(20), || async move {
            let mut sender = connect(port).await?;
            call(&mut sender).await
        })
        .await;
    }
    println!(
        "{PER_SECOND} calls/s on {CONNECTIONS} connections, median of {ROUNDS} alternating runs of {SECONDS} s"
    );
    let targets = [
        ("direct", FUNCTION, &function),
        ("proxy", PROXY, &proxy),
        ("queue-proxy", QUEUE_PROXY, &queue_proxy),
    ];
    let mut runs = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for ((_, port, process), runs) in targets.iter().zip(&mut runs) {
            let before = process.cpu();
            let latencies = load(*port).await;
            let cpu = process.cpu().saturating_sub(before) / (PER_SECOND * SECONDS);
            let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize];
            runs.push([at(0.5), at(0.99), cpu].map(|it| it.as_secs_f64() * 1e6));
        }
    }
    let mut medians = Vec::new();
    for ((name, _, process), runs) in targets.iter().zip(&runs) {
        let median = |which: usize| {
            let mut all: Vec<f64> = runs.iter().map(|run: &[f64; 3]| run[which]).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let [p50, p99, cpu] = [0, 1, 2].map(median);
        let resident = process.resident();
        let cpu_text = if *name == "direct" {
            String::new()
        } else {
            format!(", {cpu:.0} µs CPU per call, {resident:.1} MB resident")
        };
        println!("{name:11} p50 {p50:>6.0} µs, p99 {p99:>6.0} µs{cpu_text}");
        medians.push([p50, p99, cpu, resident]);
    }
    let ratios: Vec<f64> =
        medians[1].iter().zip(&medians[2]).map(|(ours, other)| ours / other).collect();
    println!(
        "proxy / queue-proxy: p50 {:.2}, p99 {:.2}, CPU {:.2}, memory {:.2}",
        ratios[0], ratios[1], ratios[2], ratios[3]
    );
    let better = ratios.iter().all(|ratio| *ratio < 1.0) && medians[1][3] <= MAX_RESIDENT_MB;
    if better { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn queue_proxy_command() -> Command {
    let mut command = Command::new(env::var_os(INSIDE).unwrap());
    command.env_clear().envs([
        ("CONTAINER_CONCURRENCY", "0"),
        ("QUEUE_SERVING_PORT", "8012"),
        ("QUEUE_SERVING_TLS_PORT", "8112"),
        ("USER_PORT", "8080"),
        ("REVISION_TIMEOUT_SECONDS", "300"),
        ("SERVING_LOGGING_CONFIG", ""),
        ("SERVING_LOGGING_LEVEL", "error"),
        ("SERVING_NAMESPACE", "bench"),
        ("SERVING_REVISION", "bench-1"),
        ("SERVING_CONFIGURATION", "bench"),
        ("SERVING_SERVICE", "bench"),
        ("SERVING_POD", "bench"),
        ("SERVING_POD_IP", "127.0.0.1"),
        ("POD_NAME", "bench"),
        ("SYSTEM_NAMESPACE", "knative-serving"),
        ("SERVING_REQUEST_LOG_TEMPLATE", ""),
        ("SERVING_ENABLE_PROBE_REQUEST_LOG", "false"),
        (
            "OBSERVABILITY_CONFIG",
            r#"{"requestMetrics":{"protocol":"prometheus"},"metrics":{"protocol":"none"},"tracing":{"protocol":"none"}}"#,
        ),
    ]);
    command
}

type Sender = http1::SendRequest<Empty<Bytes>>;

async fn connect(port: u16) -> Result<Sender, String> {
    let stream =
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.map_err(|it| it.to_string())?;
    stream.set_nodelay(true).map_err(|it| it.to_string())?;
    let (sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|it| it.to_string())?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn call(sender: &mut Sender) -> Result<(), String> {
    let request = Request::get("/").header("host", "bench").body(Empty::new()).unwrap();
    sender.ready().await.map_err(|it| it.to_string())?;
    let response = sender.send_request(request).await.map_err(|it| it.to_string())?;
    if response.status() != 200 {
        return Err(response.status().to_string());
    }
    response.into_body().collect().await.map_err(|it| it.to_string())?;
    Ok(())
}

/// Sends calls at a constant rate, and returns their sorted latencies: since their scheduled times if the
/// call before was late, otherwise since they were sent, because timers are exact to a millisecond only.
async fn load(port: u16) -> Vec<Duration> {
    let mut connections = JoinSet::new();
    let started = Instant::now() + Duration::from_millis(50);
    for number in 0..CONNECTIONS {
        connections.spawn(async move {
            let mut sender = connect(port).await.unwrap();
            let mut latencies = Vec::new();
            for at in (number..PER_SECOND * SECONDS).step_by(CONNECTIONS as usize) {
                let scheduled = started + Duration::from_secs(1) / PER_SECOND * at;
                let is_late = scheduled < Instant::now();
                tokio::time::sleep_until(scheduled.into()).await;
                let since = if is_late { scheduled } else { Instant::now() };
                call(&mut sender).await.unwrap();
                latencies.push(since.elapsed());
            }
            latencies
        });
    }
    let mut all: Vec<_> = connections.join_all().await.concat();
    all.sort_unstable();
    all
}
