//! Middleware that authenticates and authorizes requests.

use axum::{
    extract::{Request, State},
    http::header::AUTHORIZATION,
    middleware::Next,
    response::Response,
};

use crate::{Access, Peer, error_response::denied};

/// Admits a request if its [`Access`] does, for [`axum::middleware::from_fn_with_state`].
///
/// Routes find the caller's [`crate::Identity`] in the request's extensions. Other requests get
/// status 401 or 403, or `UNAUTHENTICATED` or `PERMISSION_DENIED` if they are gRPC.
pub async fn require(State(access): State<Access>, mut request: Request, next: Next) -> Response {
    let authorization = request.headers().get(AUTHORIZATION);
    match access.check(request.extensions().get::<Peer>(), authorization) {
        Ok(identity) => {
            request.extensions_mut().insert(identity);
            next.run(request).await
        }
        Err(reason) => {
            tracing::debug!(%reason, path = request.uri().path(), "denied a request");
            denied(request.headers(), reason)
        }
    }
}
