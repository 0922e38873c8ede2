//! HTTP endpoints: probes, metrics, and the log level.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use oprc_observability::LevelHandle;
use oprc_server::problem;
use serde_json::json;

use crate::{metrics::Metrics, service::Service};

#[derive(Clone)]
pub struct Probes {
    pub service: Arc<Service>,
    pub metrics: Arc<Metrics>,
}

/// Routes without authentication, because probes have no certificates.
pub(super) fn open(probes: Probes) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/health/live", get(|| async { "ok" }))
        .route("/health/ready", get(ready))
        .route("/metrics", get(metrics))
        .with_state(probes)
}

async fn ready(State(probes): State<Probes>) -> Response {
    let missing = probes.service.watches.missing();
    let broken = probes.service.failing_watches();
    let stopping = probes.service.is_stopping();
    let ready = missing.is_empty() && broken.is_empty() && !stopping;
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = json!({
        "ready": ready, "missing": missing, "broken": broken, "stopping": stopping,
        "leading": probes.service.leadership.holds(), "stale": probes.service.api_health.is_stale(),
    });
    (status, Json(body)).into_response()
}

async fn metrics(State(probes): State<Probes>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, kind)], probes.metrics.text()).into_response()
}

/// Routes that need authentication.
pub(super) fn guarded(level: Option<LevelHandle>) -> Router {
    Router::new().route("/log-level", get(read_level).put(set_level)).with_state(level)
}

async fn read_level(State(level): State<Option<LevelHandle>>) -> Response {
    level.map_or_else(no_level, |level| level.get().into_response())
}

async fn set_level(State(level): State<Option<LevelHandle>>, body: Bytes) -> Response {
    let Some(level) = level else { return no_level() };
    let filter = String::from_utf8_lossy(&body);
    match level.set(filter.trim()) {
        Ok(()) => {
            tracing::info!(filter = filter.trim(), "log level changed");
            StatusCode::NO_CONTENT.into_response()
        }
        Err(error) => problem(StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}

fn no_level() -> Response {
    problem(StatusCode::NOT_FOUND, "this process has no log level of its own").into_response()
}
