//! Gives every request a correlation id, a tracing span and metrics, and every failure the body of
//! a problem document.

use std::{sync::Arc, time::Instant};

use axum::{
    body::{Body, to_bytes},
    extract::{MatchedPath, Request, State},
    http::{HeaderName, HeaderValue, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use oprc_observability::correlation;
use tracing::Instrument as _;

use crate::api::{
    metrics::Metrics,
    problem::{Failure, PendingProblem},
};

pub(in crate::api) const CORRELATION: HeaderName = HeaderName::from_static("x-correlation-id");
/// Bytes of an extractor's rejection that become the detail of a problem.
const MAX_DETAIL_BYTES: usize = 4096;

/// A request extension: the caller's correlation id, or a new one if that is missing or malformed.
#[derive(Clone, Debug)]
pub(in crate::api) struct CorrelationId(pub Arc<str>);

/// The outermost layer, for [`axum::middleware::from_fn_with_state`].
pub(in crate::api) async fn request_context(
    State(metrics): State<Arc<Metrics>>,
    mut request: Request,
    next: Next,
) -> Response {
    let given = request.headers().get(&CORRELATION).and_then(|id| id.to_str().ok());
    let id: Arc<str> =
        given.and_then(correlation::accept).unwrap_or_else(correlation::new_id).into();
    request.extensions_mut().insert(CorrelationId(Arc::clone(&id)));
    let method = request.method().clone();
    let matched = request.extensions().get::<MatchedPath>();
    let route = matched.map_or("none", MatchedPath::as_str).to_owned();
    // The raw path isn't logged: it may contain a secret.
    let span = tracing::info_span!("request", %method, route, correlation_id = %id);
    let start = Instant::now();
    let response = next.run(request).instrument(span.clone()).await;
    let response = write_problem(response, &id).await;
    let status = response.status();
    let duration = start.elapsed();
    metrics.observe_request(&method, &route, status, duration);
    let _entered = span.enter();
    tracing::debug!(
        status = status.as_u16(),
        duration_ms = duration.as_millis(),
        "request completed"
    );
    response
}

/// Writes the body of a failure. Failures of the router and of extractors have a text only, and
/// become problem documents here.
async fn write_problem(mut response: Response, id: &str) -> Response {
    let status = response.status();
    if status.is_client_error() || status.is_server_error() {
        if response.extensions().get::<PendingProblem>().is_none() {
            let (parts, body) = response.into_parts();
            let detail = to_bytes(body, MAX_DETAIL_BYTES).await.unwrap_or_default();
            let failure = Failure::from_status(status, &String::from_utf8_lossy(&detail));
            response = failure.into_response();
            response.headers_mut().extend(parts.headers);
        }
        if let Some(PendingProblem(mut problem)) = response.extensions_mut().remove() {
            id.clone_into(&mut problem.extensions.correlation_id);
            *response.body_mut() = Body::from(serde_json::to_vec(&problem).unwrap_or_default());
            let headers = response.headers_mut();
            let problem_json = HeaderValue::from_static("application/problem+json");
            headers.insert(header::CONTENT_TYPE, problem_json);
            headers.remove(header::CONTENT_LENGTH);
            // The next request may succeed, so no cache may keep a failure.
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
    }
    let headers = response.headers_mut();
    let id = HeaderValue::from_str(id).unwrap_or(HeaderValue::from_static("none"));
    headers.insert(CORRELATION, id);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
