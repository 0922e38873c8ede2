//! A sample function. It responds on every path, serves Prometheus metrics, and simulates load,
//! latency and failures on request, so that tests can observe how the platform reacts.
//!
//! | query | effect |
//! | --- | --- |
//! | `name=Ada` | greets Ada |
//! | `sleep_ms=N` | delays the response by N milliseconds |
//! | `burn_ms=N` | uses N milliseconds of CPU time, which take longer under a CPU limit |
//! | `hold_mb=N` | allocates N megabytes until the response |
//! | `keep_mb=N` | allocates N megabytes until the process ends |
//! | `fail=N` | responds with status N |
//!
//! The response has the number of concurrent requests at its start, with itself.
//!
//! | variable | effect |
//! | --- | --- |
//! | `PORT` | port to listen on, 8080 by default |
//! | `CONCURRENCY` | maximum number of concurrent requests; others wait |
//! | `container` | set in images: listens on all addresses instead of loopback |
//! | `DRAIN_MS` | how long to accept requests after SIGTERM, 2000 by default |
//!
//! `hello-fn get URL` prints the response of a URL, so that tests can send requests from a pod.

mod client;
mod metrics;
mod options;

use std::{
    env,
    net::Ipv4Addr,
    process::ExitCode,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    extract::{Query, State, rejection::QueryRejection},
    http::{
        HeaderValue, Method, StatusCode, Uri,
        header::{CONNECTION, CONTENT_TYPE},
    },
    middleware::map_response_with_state,
    response::{IntoResponse as _, Response},
    routing::get,
};
use serde_json::json;
use tokio::{net::TcpListener, signal::unix::SignalKind, sync::Semaphore};

use self::{metrics::Metrics, options::RequestOptions};

struct Function {
    metrics: Metrics,
    concurrency: Semaphore,
    /// Requests in progress.
    in_progress: AtomicUsize,
    draining: AtomicBool,
    pod: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let outcome = match arguments.as_slice() {
        [] => run().await,
        [command, url] if command == "get" => client::get(url).await,
        _ => Err("usage: hello-fn [get http://HOST[:PORT]/PATH]".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hello-fn: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), String> {
    let port: u16 = setting("PORT", 8080)?;
    let concurrency: usize = setting("CONCURRENCY", Semaphore::MAX_PERMITS)?;
    if concurrency == 0 || concurrency > Semaphore::MAX_PERMITS {
        return Err("CONCURRENCY must be at least 1".to_owned());
    }
    let drain = Duration::from_millis(setting("DRAIN_MS", 2000)?);
    let function = Arc::new(Function {
        metrics: Metrics::default(),
        concurrency: Semaphore::new(concurrency),
        in_progress: AtomicUsize::new(0),
        draining: AtomicBool::new(false),
        pod: env::var("HOSTNAME").unwrap_or_default(),
    });
    let routes = Router::new()
        .route("/healthz", get(healthz))
        .route("/metrics", get(metrics_text))
        .fallback(invoke)
        .layer(map_response_with_state(Arc::clone(&function), close_connection_when_draining))
        .with_state(Arc::clone(&function));
    // Outside of a container only this machine may connect.
    let contained = env::var_os("container").is_some();
    let address = if contained { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
    let listener = TcpListener::bind((address, port)).await;
    let listener = listener.map_err(|error| format!("cannot listen on port {port}: {error}"))?;
    println!("hello-fn: listening on {address}:{port}");
    let mut terminate =
        tokio::signal::unix::signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let until_drained = async move {
        terminate.recv().await;
        // Requests arrive until all proxies have removed this pod from their endpoints.
        function.draining.store(true, Ordering::Relaxed);
        tokio::time::sleep(drain).await;
    };
    axum::serve(listener, routes)
        .with_graceful_shutdown(until_drained)
        .await
        .map_err(|error| error.to_string())
}

fn setting<T: FromStr>(name: &str, default: T) -> Result<T, String> {
    match env::var(name) {
        Ok(text) => text.parse().map_err(|_| format!("{name}={text}: not a number in range")),
        Err(_) => Ok(default),
    }
}

/// Tells clients not to reuse the connection: a request sent while it closes would be lost.
async fn close_connection_when_draining(
    State(function): State<Arc<Function>>,
    mut response: Response,
) -> Response {
    if function.draining.load(Ordering::Relaxed) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn healthz(State(function): State<Arc<Function>>) -> (StatusCode, &'static str) {
    if function.draining.load(Ordering::Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "draining\n")
    } else {
        (StatusCode::OK, "ok\n")
    }
}

async fn metrics_text(State(function): State<Arc<Function>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, kind)], function.metrics.text()).into_response()
}

/// A request in progress, whether it ends with a response or because the client has gone.
struct InProgress(Arc<Function>);

impl InProgress {
    /// Also returns the number of requests in progress, with this one.
    fn begin(function: &Arc<Function>) -> (Self, usize) {
        let before = function.in_progress.fetch_add(1, Ordering::Relaxed);
        (Self(Arc::clone(function)), before + 1)
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.in_progress.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn invoke(
    State(function): State<Arc<Function>>,
    method: Method,
    uri: Uri,
    options: Result<Query<RequestOptions>, QueryRejection>,
) -> Response {
    let started = Instant::now();
    let options = options.map_err(|error| error.body_text());
    let response = match options.and_then(|Query(options)| options.validate()) {
        Err(problem) => (StatusCode::BAD_REQUEST, Json(json!({"error": problem}))),
        Ok(options) => {
            let _permit = function.concurrency.acquire().await;
            let (_counted, concurrent) = InProgress::begin(&function);
            let status = options.simulate().await;
            let name = options.name.as_deref().unwrap_or("world");
            let message = format!("Hello, {name}!");
            (
                status,
                Json(json!({
                    "message": message, "path": uri.path(), "pod": function.pod,
                    "concurrent": concurrent,
                })),
            )
        }
    };
    function.metrics.observe(&method, response.0, started.elapsed());
    response.into_response()
}
