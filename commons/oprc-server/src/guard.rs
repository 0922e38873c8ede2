//! Routes that aren't for everybody.

use axum::{
    extract::{Request, State},
    http::header::AUTHORIZATION,
    middleware::Next,
    response::Response,
};

use crate::{Access, Peer, answer::denied};

/// Lets only those use a route whom an [`Access`] lets, for
/// [`axum::middleware::from_fn_with_state`]. Their [`crate::Identity`] becomes an extension of the
/// request; others get status 401 or 403, or `UNAUTHENTICATED` or `PERMISSION_DENIED` where the
/// request is of gRPC.
pub async fn require(State(access): State<Access>, mut request: Request, next: Next) -> Response {
    let authorization = request.headers().get(AUTHORIZATION);
    match access.check(request.extensions().get::<Peer>(), authorization) {
        Ok(identity) => {
            request.extensions_mut().insert(identity);
            next.run(request).await
        }
        Err(reason) => {
            tracing::debug!(%reason, path = request.uri().path(), "Denied a request");
            denied(request.headers(), reason)
        }
    }
}
