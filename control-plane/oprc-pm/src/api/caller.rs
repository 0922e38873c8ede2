//! Who asks, how often, and what they may do.

use std::{sync::Arc, time::Instant};

use axum::{
    extract::{FromRequestParts, Request, State},
    http::{HeaderValue, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use oprc_server::{Access, Denied, Identity, Peer, Role};
use tokio::{sync::Semaphore, time::timeout};

use super::{dress::CorrelationId, metrics::Metrics, problem::Failure, rate::Rates};
use crate::{config::Limits, service::Caller};

/// What stands between the port and the handlers.
#[derive(Clone)]
pub(super) struct Gate {
    access: Access,
    rates: Arc<Rates>,
    requests: Arc<Semaphore>,
    metrics: Arc<Metrics>,
    limits: Limits,
}

impl Gate {
    /// A gate for those whom an access lets in.
    pub(super) fn new(access: Access, limits: Limits, metrics: Arc<Metrics>) -> Self {
        Self {
            access: access.minimum_role(Role::Viewer),
            rates: Arc::new(Rates::new(limits.rate, limits.burst)),
            requests: Arc::new(Semaphore::new(limits.requests)),
            metrics,
            limits,
        }
    }

    fn identify(&self, request: &Request) -> Result<Identity, Failure> {
        let peer = request.extensions().get::<Peer>();
        let checked = self.access.check(peer, request.headers().get(header::AUTHORIZATION));
        let address = || peer.map(|peer| peer.address.ip().to_string()).unwrap_or_default();
        // Those without a name, and those who try tokens out, go by where they are.
        let key = match &checked {
            Ok(Identity { name: Some(name), .. }) => format!("name {name}"),
            _ => format!("address {}", address()),
        };
        self.rates.take(&key, Instant::now()).map_err(|wait| {
            self.metrics.limited.inc();
            let detail = "You ask more often than is allowed.";
            Failure::new(StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED", detail)
                .retry_after(wait.as_secs().saturating_add(1))
        })?;
        checked.map_err(|denied| {
            tracing::debug!(reason = %denied, "denied a request");
            refusal(denied)
        })
    }
}

fn refusal(denied: Denied) -> Failure {
    let reason = match denied {
        Denied::NoCertificate => "CERTIFICATE_REQUIRED",
        Denied::NoToken => "TOKEN_REQUIRED",
        Denied::InvalidToken => "TOKEN_INVALID",
        Denied::ExpiredToken => "TOKEN_EXPIRED",
        Denied::InsufficientRole => return weak(Role::Admin),
    };
    Failure::new(StatusCode::UNAUTHORIZED, reason, denied.to_string())
        .header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
}

fn weak(needed: Role) -> Failure {
    let detail = format!("This needs a token with the role {needed}.");
    Failure::new(StatusCode::FORBIDDEN, "ROLE_REQUIRED", detail)
}

/// Lets those in who may, not too often, not too many at once, and not for ever; for
/// [`axum::middleware::from_fn_with_state`].
pub(super) async fn gate(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    let identity = match gate.identify(&request) {
        Ok(identity) => identity,
        Err(failure) => return failure.into_response(),
    };
    let Ok(_permit) = gate.requests.try_acquire() else {
        gate.metrics.limited.inc();
        let detail = "Too many requests are being worked on.";
        let failure = Failure::new(StatusCode::SERVICE_UNAVAILABLE, "OVERLOADED", detail);
        return failure.retry_after(1).into_response();
    };
    request.extensions_mut().insert(identity);
    match timeout(gate.limits.timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let detail = "It took too long. What was asked for may still come about: look first.";
            Failure::new(StatusCode::GATEWAY_TIMEOUT, "TIMEOUT", detail).into_response()
        }
    }
}

fn caller(parts: &Parts, needed: Role) -> Result<Caller, Failure> {
    // Without an identity the gate was left out: nobody gets in.
    let identity = parts.extensions.get::<Identity>().ok_or_else(|| weak(needed))?;
    if identity.role < needed {
        return Err(weak(needed));
    }
    let id = parts.extensions.get::<CorrelationId>();
    let correlation_id = id.map(|id| id.0.to_string()).unwrap_or_default();
    Ok(Caller { name: identity.name.clone(), correlation_id })
}

macro_rules! callers {
    ($($(#[$doc:meta])* $name:ident => $role:expr;)*) => {$(
        $(#[$doc])*
        pub(super) struct $name(
            /// Who it is.
            pub Caller,
        );

        impl<S: Sync> FromRequestParts<S> for $name {
            type Rejection = Failure;

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
                caller(parts, $role).map(Self)
            }
        }
    )*};
}

/// Somebody who may look.
pub(super) struct Viewer;

impl<S: Sync> FromRequestParts<S> for Viewer {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        caller(parts, Role::Viewer).map(|_| Self)
    }
}

callers! {
    /// Somebody who may publish and deploy.
    Deployer => Role::Deployer;
    /// Somebody who may do everything.
    Admin => Role::Admin;
}
