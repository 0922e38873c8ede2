//! Stands in for the data grid. It keeps no data: it checks the variables that a control plane
//! gave it, opens the ports of the grid and answers for its health and state.
//!
//! A variable that is missing or malformed ends it with status 2 and a line that names the
//! variable; `config.rs` lists them. Besides those of the grid there are
//!
//! | variable | effect |
//! | --- | --- |
//! | `container` | set in our images: listens on all addresses, not only on loopback |
//! | `STAND_IN_UNREADY_UNTIL` | its health is `NOT_SERVING` until that file exists |
//! | `STAND_IN_EXIT_AFTER_MS` | exits with status 1 after that long |

mod collection;
mod config;
mod disk;
mod grid;

use std::{
    convert::Infallible,
    env,
    future::pending,
    io::{self, Write as _},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use axum::{Router, http::header::CONTENT_TYPE, routing::get};
use oprc_grpc::odgm::data_service_server::DataServiceServer;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::Notify,
    time::sleep,
};
use tonic::service::Routes;
use tonic_health::{
    ServingStatus,
    server::{HealthReporter, health_reporter},
};

use self::{
    config::{Config, Variables},
    grid::Grid,
};

const LONGEST_DRAIN: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    let variables: Variables =
        env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
    let config = Config::read(&variables).and_then(|config| {
        config.data_dir.as_deref().map_or(Ok(()), |dir| disk::count_start(dir, &config.node_id))?;
        Ok(config)
    });
    let (code, error) = match config {
        Err(error) => (2, error),
        Ok(config) => match serve(config).await {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => (1, error),
        },
    };
    eprintln!("odgm-stand-in: {error}");
    ExitCode::from(code)
}

/// Serves until SIGTERM.
async fn serve(config: Config) -> Result<(), String> {
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let (reporter, health) = health_reporter();
    let Config { http_port, zenoh_port, unready_until, exit_after, .. } = config.clone();
    report(&reporter, unready_until.is_none()).await;
    let routes = routes(Routes::new(health), config);
    let zenoh = listen("OPRC_ZENOH_PORT", zenoh_port).await?;
    let http = listen("ODGM_HTTP_PORT", http_port).await?;

    // Whoever started this can wait for the line; it doesn't matter if nobody reads it.
    let _ = writeln!(io::stdout(), "listens on ports {http_port} and {zenoh_port}");
    let leaving = Arc::new(Notify::new());
    let left = Arc::clone(&leaving);
    let until_terminated = async move {
        tokio::select! {
            _ = terminate.recv() => (),
            _ = report_once_there(&reporter, unready_until) => (),
        }
        report(&reporter, false).await;
        leaving.notify_one();
    };
    let serving = axum::serve(http, routes).with_graceful_shutdown(until_terminated);
    tokio::select! {
        outcome = serving => outcome.map_err(|error| error.to_string()),
        // Who watches health never hangs up.
        () = async { left.notified().await; sleep(LONGEST_DRAIN).await } => Ok(()),
        () = expire(exit_after) => Err("exits as STAND_IN_EXIT_AFTER_MS asks".to_owned()),
        never = hang_up(&zenoh) => match never {},
    }
}

fn routes(health: Routes, config: Config) -> Router {
    let metrics = "# HELP odgm_up Whether the grid runs.\n# TYPE odgm_up gauge\nodgm_up 1\n";
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    health
        .add_service(DataServiceServer::new(Grid(config)))
        .into_axum_router()
        .route("/metrics", get(async move || (kind, metrics)))
}

async fn listen(variable: &str, port: u16) -> Result<TcpListener, String> {
    // In a container the address of the pod is the only one; elsewhere nobody else is to call.
    let contained = env::var_os("container").is_some();
    let address = if contained { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
    let listener: io::Result<_> = TcpListener::bind((address, port)).await;
    listener.map_err(|error| format!("{variable}={port}: can't listen there: {error}"))
}

/// Tells everybody whether the grid serves.
async fn report(reporter: &HealthReporter, serving: bool) {
    let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
    for service in ["", "odgm"] {
        reporter.set_service_status(service, status).await;
    }
}

/// Reports that the grid serves once a file exists.
async fn report_once_there(reporter: &HealthReporter, file: Option<PathBuf>) -> Infallible {
    if let Some(file) = file.as_deref() {
        while !exists(file).await {
            sleep(LOOK_AGAIN).await;
        }
        report(reporter, true).await;
    }
    pending().await
}

async fn exists(file: &Path) -> bool {
    tokio::fs::try_exists(file).await.unwrap_or(false)
}

async fn expire(after: Option<Duration>) {
    match after {
        Some(after) => sleep(after).await,
        None => pending().await,
    }
}

/// Accepts who comes and hangs up, one after the other: the port is open, and nothing piles up.
async fn hang_up(listener: &TcpListener) -> Infallible {
    loop {
        if listener.accept().await.is_err() {
            // Out of descriptors: an error would follow the other.
            sleep(LOOK_AGAIN).await;
        }
    }
}
