//! What every request and every answer gets: a correlation id, a line in the logs, a figure, and,
//! where it went wrong, the body of a problem document.

use std::{sync::Arc, time::Instant};

use axum::{
    body::{Body, to_bytes},
    extract::{MatchedPath, Request, State},
    http::{HeaderName, HeaderValue, StatusCode, header},
    middleware::Next,
    response::Response,
};
use oprc_observability::correlation;
use oprc_rest::Problem;
use tracing::Instrument as _;

use super::{
    metrics::Metrics,
    problem::{Document, title, word},
};

/// The header of correlation ids.
pub(super) const CORRELATION: HeaderName = HeaderName::from_static("x-correlation-id");
/// The text of a rejection that becomes the detail of a problem has at most so many bytes.
const DETAIL: usize = 4096;

/// The id of a request, given by its caller or made here; an extension of every request.
#[derive(Clone, Debug)]
pub(super) struct CorrelationId(pub Arc<str>);

/// For [`axum::middleware::from_fn_with_state`], outside of everything else.
pub(super) async fn dress(
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
    // The path as it was sent isn't logged by default: somebody may have put a secret there.
    let span = tracing::info_span!("request", %method, route, correlation_id = %id);
    let began = Instant::now();
    let response = next.run(request).instrument(span.clone()).await;
    let response = explain(response, &id).await;
    let status = response.status();
    let took = began.elapsed();
    metrics.answered(&method, &route, status, took);
    let _entered = span.enter();
    tracing::debug!(status = status.as_u16(), millis = took.as_millis(), "answered");
    response
}

/// Writes a problem's body, and makes problems of refusals that have a text only.
async fn explain(response: Response, id: &str) -> Response {
    let (mut parts, body) = response.into_parts();
    let value = HeaderValue::from_str(id).unwrap_or(HeaderValue::from_static("none"));
    parts.headers.insert(CORRELATION, value);
    let nosniff = HeaderValue::from_static("nosniff");
    parts.headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    let problem = match parts.extensions.remove::<Document>() {
        Some(Document(problem)) => *problem,
        None if refused(parts.status) => {
            let detail = to_bytes(body, DETAIL).await.unwrap_or_default();
            Problem {
                kind: "about:blank".to_owned(),
                title: title(parts.status),
                status: parts.status.as_u16(),
                detail: String::from_utf8_lossy(&detail).into_owned(),
                reason: word(parts.status),
                ..Problem::default()
            }
        }
        None => return Response::from_parts(parts, body),
    };
    let problem = Problem { correlation_id: id.to_owned(), ..problem };
    let body = serde_json::to_vec(&problem).unwrap_or_default();
    let kind = HeaderValue::from_static("application/problem+json");
    parts.headers.insert(header::CONTENT_TYPE, kind);
    parts.headers.remove(header::CONTENT_LENGTH);
    // Nobody is to keep an answer that may be another one the next time.
    parts.headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Response::from_parts(parts, Body::from(body))
}

fn refused(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}
