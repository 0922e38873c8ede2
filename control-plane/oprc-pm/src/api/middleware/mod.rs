//! What surrounds every handler, from the outside in: [`request_context`], CORS, [`auth`].

pub(super) mod auth;
mod rate_limit;
pub(super) mod request_context;

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Method, header};
use tower_http::cors::CorsLayer;

use self::request_context::CORRELATION;

pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const PREFLIGHT_MAX_AGE: Duration = Duration::from_mins(10);

/// Lets pages of these origins use the API. It stands outside of [`auth`], because browsers send
/// preflight requests without a token.
pub(super) fn cors(origins: &[String]) -> CorsLayer {
    let origins = origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok());
    CorsLayer::new()
        .allow_origin(origins.collect::<Vec<_>>())
        .allow_methods([Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE])
        .allow_headers([
            header::AUTHORIZATION,
            header::CONTENT_TYPE,
            header::IF_MATCH,
            header::IF_NONE_MATCH,
            LAST_EVENT_ID,
            CORRELATION,
        ])
        .expose_headers([header::ETAG, header::LOCATION, header::RETRY_AFTER, CORRELATION])
        .max_age(PREFLIGHT_MAX_AGE)
}
