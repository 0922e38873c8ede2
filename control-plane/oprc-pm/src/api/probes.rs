//! Probes, metrics and the OpenAPI document: without authentication, since probes have no tokens.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{Html, IntoResponse as _, Response},
    routing::get,
};
use serde_json::json;
use utoipa::openapi::OpenApi;
use utoipa_scalar::Scalar;

use super::{App, problem::Answer};

/// Content security policy of `/docs`: the API document, and Scalar's script from its CDN.
const DOCS_CSP: &str = "default-src 'none'; script-src https://cdn.jsdelivr.net 'unsafe-inline'; \
    style-src 'unsafe-inline' https://cdn.jsdelivr.net; img-src 'self' data:; \
    font-src https://fonts.scalar.com data:; connect-src 'self'";

pub(super) fn router(document: &OpenApi, docs: bool) -> Router<App> {
    let text: Arc<str> = document.to_json().unwrap_or_default().into();
    let router = Router::new()
        .route("/health", get(health))
        .route("/health/live", get(|| async { Json(json!({ "status": "live" })) }))
        .route("/health/ready", get(health))
        .route("/metrics", get(metrics))
        .route(
            "/openapi.json",
            get(move || {
                let text = text.to_string();
                async move { ([(header::CONTENT_TYPE, "application/json")], text) }
            }),
        );
    if !docs {
        return router;
    }
    let page: Arc<str> = Scalar::new(document.clone()).to_html().into();
    let policy = (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(DOCS_CSP));
    router.route("/docs", get(move || async move { ([policy], Html(page.to_string())) }))
}

async fn health(State(app): State<App>) -> Response {
    let mut problems = Vec::new();
    if *app.stopping.borrow() {
        problems.push("shutting down".to_owned());
    }
    problems.extend(app.registry.stale().map(|why| format!("package index is stale: {why}")));
    problems.extend(app.deployments.not_ready());
    let ready = problems.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let word = if ready { "ready" } else { "not ready" };
    (status, Json(json!({ "status": word, "ready": ready, "problems": problems }))).into_response()
}

async fn metrics(State(app): State<App>) -> Answer<Response> {
    let text = app.metrics.scrape(app.deployments).await?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}
