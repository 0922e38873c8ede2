//! Pages of other origins: only those that are configured may use the API.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};

/// The origins that may.
#[derive(Clone)]
pub(super) struct Origins(Arc<[String]>);

impl Origins {
    /// These and no other.
    pub(super) fn new(origins: &[String]) -> Self {
        Self(origins.into())
    }
}

/// For [`axum::middleware::from_fn_with_state`], outside of the gate: a browser asks whether it may
/// ask without a token.
pub(super) async fn cors(State(origins): State<Origins>, request: Request, next: Next) -> Response {
    let origin = request.headers().get(header::ORIGIN).cloned();
    let allowed = origin.filter(|origin| {
        origin.to_str().is_ok_and(|origin| origins.0.iter().any(|known| known == origin))
    });
    let asks = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let Some(origin) = allowed else {
        // Not a word of CORS: the browser refuses by itself.
        return next.run(request).await;
    };
    let mut response =
        if asks { StatusCode::NO_CONTENT.into_response() } else { next.run(request).await };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    let text = HeaderValue::from_static;
    if asks {
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, text("GET, HEAD, POST, PUT, DELETE"));
        headers.insert(
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            text(
                "authorization, content-type, if-match, if-none-match, last-event-id, \
                 x-correlation-id",
            ),
        );
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, text("600"));
    } else {
        headers.insert(
            header::ACCESS_CONTROL_EXPOSE_HEADERS,
            text("etag, location, retry-after, x-correlation-id"),
        );
    }
    response
}
