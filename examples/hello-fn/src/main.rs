//! A small function to deploy. It answers every path, tells Prometheus how long that took, and
//! misbehaves when a request asks it to: so that tests can see what a platform does about it.
//!
//! | query | effect |
//! | --- | --- |
//! | `name=Ada` | greets Ada |
//! | `sleep_ms=N` | answers N milliseconds later |
//! | `burn_ms=N` | keeps one processor busy for N milliseconds |
//! | `hold_mb=N` | holds N megabytes until it answers |
//! | `fail=N` | answers with status N |
//!
//! | variable | effect |
//! | --- | --- |
//! | `PORT` | listens there instead of on 8080 |
//! | `CONCURRENCY` | works on that many requests at a time; others wait |
//! | `container` | set in our images: listens on all addresses, not only on loopback |
//! | `DRAIN_MS` | goes on serving that long after SIGTERM, 2000 unless said |
//!
//! Started as `hello-fn get URL` it asks instead of answering: it prints what the URL answers, so
//! that a pod can try what another one serves.

mod client;
mod metrics;
mod work;

use std::{
    env,
    net::Ipv4Addr,
    process::ExitCode,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
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

use self::{metrics::Metrics, work::Wish};

/// What all requests share.
struct Function {
    metrics: Metrics,
    turns: Semaphore,
    draining: AtomicBool,
    pod: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let outcome = match arguments.as_slice() {
        [] => run().await,
        [command, url] if command == "get" => client::get(url).await,
        _ => Err("takes no argument, or: get http://HOST[:PORT]/PATH".to_owned()),
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
    let turns: usize = setting("CONCURRENCY", Semaphore::MAX_PERMITS)?;
    if turns == 0 || turns > Semaphore::MAX_PERMITS {
        return Err("CONCURRENCY must be a number of requests, at least 1".to_owned());
    }
    let drain = Duration::from_millis(setting("DRAIN_MS", 2000)?);
    let function = Arc::new(Function {
        metrics: Metrics::default(),
        turns: Semaphore::new(turns),
        draining: AtomicBool::new(false),
        pod: env::var("HOSTNAME").unwrap_or_default(),
    });
    let routes = Router::new()
        .route("/healthz", get(healthz))
        .route("/metrics", get(metrics_text))
        .fallback(invoke)
        .layer(map_response_with_state(Arc::clone(&function), say_farewell))
        .with_state(Arc::clone(&function));
    // In a container the address of the pod is the only one; elsewhere nobody else is to call.
    let contained = env::var_os("container").is_some();
    let address = if contained { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
    let listener = TcpListener::bind((address, port)).await;
    let listener = listener.map_err(|error| format!("can't listen on port {port}: {error}"))?;
    println!("hello-fn: listens on {address}:{port}");
    let mut terminate =
        tokio::signal::unix::signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let until_drained = async move {
        terminate.recv().await;
        // New requests come until every proxy has heard that this pod is leaving.
        function.draining.store(true, Ordering::Relaxed);
        tokio::time::sleep(drain).await;
    };
    axum::serve(listener, routes)
        .with_graceful_shutdown(until_drained)
        .await
        .map_err(|error| error.to_string())
}

/// A variable's value, or what holds where it isn't set.
fn setting<T: FromStr>(name: &str, default: T) -> Result<T, String> {
    match env::var(name) {
        Ok(text) => text.parse().map_err(|_| format!("{name}={text}: not a number in range")),
        Err(_) => Ok(default),
    }
}

/// Who keeps its connections is told that this one ends: closed without a word, it could take a
/// request with it.
async fn say_farewell(State(function): State<Arc<Function>>, mut answer: Response) -> Response {
    if function.draining.load(Ordering::Relaxed) {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    answer
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

async fn invoke(
    State(function): State<Arc<Function>>,
    method: Method,
    uri: Uri,
    wish: Result<Query<Wish>, QueryRejection>,
) -> Response {
    let begun = Instant::now();
    let answer = match wish.map_err(|error| error.body_text()).and_then(|Query(wish)| wish.check())
    {
        Err(problem) => (StatusCode::BAD_REQUEST, Json(json!({"error": problem}))),
        Ok(wish) => {
            let _turn = function.turns.acquire().await;
            let status = wish.grant().await;
            let name = wish.name.as_deref().unwrap_or("world");
            let message = format!("Hello, {name}!");
            (status, Json(json!({"message": message, "path": uri.path(), "pod": function.pod})))
        }
    };
    function.metrics.observe(&method, answer.0, begun.elapsed());
    answer.into_response()
}
