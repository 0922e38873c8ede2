//! Authentication, roles, and limits per caller and in total.

use std::{sync::Arc, time::Instant};

use axum::{
    extract::{FromRequestParts, Request, State},
    http::{HeaderValue, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use oprc_server::{Access, Denied, Identity, Peer, Role};
use tokio::sync::Semaphore;

use super::{rate_limit::RateLimiter, request_context::CorrelationId};
use crate::{
    api::{metrics::Metrics, problem::Failure},
    config::Limits,
    service::Caller,
};

/// State of [`authenticate`].
#[derive(Clone)]
pub(in crate::api) struct Auth {
    access: Access,
    rate_limiter: Arc<RateLimiter>,
    requests: Arc<Semaphore>,
    metrics: Arc<Metrics>,
}

impl Auth {
    pub(in crate::api) fn new(access: Access, limits: Limits, metrics: Arc<Metrics>) -> Self {
        Self {
            access: access.minimum_role(Role::Viewer),
            rate_limiter: Arc::new(RateLimiter::new(limits.rate, limits.burst)),
            requests: Arc::new(Semaphore::new(limits.requests)),
            metrics,
        }
    }

    fn identify(&self, request: &Request) -> Result<Identity, Failure> {
        let peer = request.extensions().get::<Peer>();
        let checked = self.access.check(peer, request.headers().get(header::AUTHORIZATION));
        let address = || peer.map(|peer| peer.address.ip().to_string()).unwrap_or_default();
        // Callers without a name, and those who guess tokens, are limited by address.
        let key = match &checked {
            Ok(Identity { name: Some(name), .. }) => format!("name {name}"),
            _ => format!("address {}", address()),
        };
        self.rate_limiter.take(&key, Instant::now()).map_err(|wait| {
            self.metrics.limited.inc();
            let detail = "Rate limit exceeded. Retry after the time in Retry-After.";
            Failure::new(StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED", detail)
                .retry_after(wait.as_secs().saturating_add(1))
        })?;
        checked.map_err(|denied| {
            tracing::debug!(reason = %denied, "denied a request");
            unauthenticated(denied)
        })
    }
}

fn unauthenticated(denied: Denied) -> Failure {
    let reason = match denied {
        Denied::NoCertificate => "CERTIFICATE_REQUIRED",
        Denied::NoToken => "TOKEN_REQUIRED",
        Denied::InvalidToken => "TOKEN_INVALID",
        Denied::ExpiredToken => "TOKEN_EXPIRED",
        Denied::InsufficientRole => return role_required(Role::Admin),
    };
    Failure::new(StatusCode::UNAUTHORIZED, reason, denied.to_string())
        .header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
}

fn role_required(needed: Role) -> Failure {
    let detail = format!("This request requires a token with the role {needed}.");
    Failure::new(StatusCode::FORBIDDEN, "ROLE_REQUIRED", detail)
}

/// Rejects callers without valid credentials, above their rate limit, or beyond the concurrency
/// limit; for [`axum::middleware::from_fn_with_state`].
pub(in crate::api) async fn authenticate(
    State(auth): State<Auth>,
    mut request: Request,
    next: Next,
) -> Response {
    let identity = match auth.identify(&request) {
        Ok(identity) => identity,
        Err(failure) => return failure.into_response(),
    };
    let Ok(_permit) = auth.requests.try_acquire() else {
        auth.metrics.limited.inc();
        let detail = "Too many concurrent requests. Retry after the time in Retry-After.";
        let failure = Failure::new(StatusCode::SERVICE_UNAVAILABLE, "OVERLOADED", detail);
        return failure.retry_after(1).into_response();
    };
    request.extensions_mut().insert(identity);
    next.run(request).await
}

fn caller(parts: &Parts, needed: Role) -> Result<Caller, Failure> {
    // Without an identity the route isn't behind `authenticate`.
    let identity = parts.extensions.get::<Identity>().ok_or_else(|| role_required(needed))?;
    if identity.role < needed {
        return Err(role_required(needed));
    }
    let id = parts.extensions.get::<CorrelationId>();
    let correlation_id = id.map(|id| id.0.to_string()).unwrap_or_default();
    Ok(Caller { name: identity.name.clone(), correlation_id })
}

/// Extractors that require a role and give the caller.
macro_rules! callers {
    ($($name:ident => $role:expr;)*) => {$(
        pub(in crate::api) struct $name(pub Caller);

        impl<S: Sync> FromRequestParts<S> for $name {
            type Rejection = Failure;

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
                caller(parts, $role).map(Self)
            }
        }
    )*};
}

/// Requires the role `viewer`.
pub(in crate::api) struct Viewer;

impl<S: Sync> FromRequestParts<S> for Viewer {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        caller(parts, Role::Viewer).map(|_| Self)
    }
}

callers! {
    Deployer => Role::Deployer;
    Admin => Role::Admin;
}
