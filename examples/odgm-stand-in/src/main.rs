//! Stand-in for the data grid. It stores no data: it validates the variables that the control plane
//! sets, opens the port of the grid and serves its health and status APIs.
//!
//! It exits with status 2 and names the variable if one is missing or invalid; `config.rs` lists them.
//! In addition to those of the grid there are
//!
//! | variable | effect |
//! | --- | --- |
//! | `container` | set in images: listens on all addresses instead of loopback |
//! | `STAND_IN_UNREADY_UNTIL` | reports `NOT_SERVING` until this file exists |
//! | `STAND_IN_EXIT_AFTER_MS` | exits with status 1 after this time |

mod collection;
mod config;
mod grid;
mod start_count;

use std::{
    convert::Infallible,
    env,
    future::pending,
    io::{self, Write as _},
    net::Ipv4Addr,
    path::PathBuf,
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

const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    let variables: Variables =
        env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
    let config = Config::read(&variables).and_then(|config| {
        if let Some(dir) = &config.data_dir {
            start_count::increment(dir, &config.node_id)?;
        }
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
    let Config { http_port, unready_until, exit_after, .. } = config.clone();
    reporter.set_service_status("live", ServingStatus::Serving).await;
    set_ready(&reporter, unready_until.is_none()).await;
    let routes = routes(Routes::new(health), config);
    let http = listen("ODGM_HTTP_PORT", http_port).await?;

    // Tests wait for this line; a closed stdout is not an error.
    let _ = writeln!(io::stdout(), "listening on port {http_port}");
    let draining = Arc::new(Notify::new());
    let drained = Arc::clone(&draining);
    let until_terminated = async move {
        tokio::select! {
            _ = terminate.recv() => (),
            _ = serve_once_ready(&reporter, unready_until) => (),
        }
        set_ready(&reporter, false).await;
        draining.notify_one();
    };
    let serving = axum::serve(http, routes).with_graceful_shutdown(until_terminated);
    tokio::select! {
        outcome = serving => outcome.map_err(|error| error.to_string()),
        // Watches of the health service never end by themselves.
        () = async { drained.notified().await; sleep(DRAIN_TIMEOUT).await } => Ok(()),
        () = sleep(exit_after.unwrap_or_default()), if exit_after.is_some() => {
            Err("exiting because of STAND_IN_EXIT_AFTER_MS".to_owned())
        }
    }
}

fn routes(health: Routes, config: Config) -> Router {
    let metrics = "# HELP odgm_up Whether the grid is running.\n# TYPE odgm_up gauge\nodgm_up 1\n";
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    health
        .add_service(DataServiceServer::new(Grid(config)))
        .into_axum_router()
        .route("/metrics", get(async move || (kind, metrics)))
}

async fn listen(variable: &str, port: u16) -> Result<TcpListener, String> {
    // Outside of a container only this machine may connect.
    let contained = env::var_os("container").is_some();
    let address = if contained { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
    let listener: io::Result<_> = TcpListener::bind((address, port)).await;
    listener.map_err(|error| format!("{variable}={port}: cannot listen: {error}"))
}

async fn set_ready(reporter: &HealthReporter, serving: bool) {
    let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
    for service in ["", "odgm", "ready"] {
        reporter.set_service_status(service, status).await;
    }
}

/// Reports `SERVING` once the file exists; never returns.
async fn serve_once_ready(reporter: &HealthReporter, file: Option<PathBuf>) -> Infallible {
    if let Some(file) = file {
        while !tokio::fs::try_exists(&file).await.unwrap_or(false) {
            sleep(POLL_INTERVAL).await;
        }
        set_ready(reporter, true).await;
    }
    pending().await
}
