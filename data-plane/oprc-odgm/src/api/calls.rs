//! Calls of methods and macros.

use axum::{
    Json,
    extract::State as Shared,
    http::{HeaderMap, HeaderName, HeaderValue, header::ETAG},
    response::{IntoResponse as _, Response},
};
use serde_json::Value;

use super::{
    body::Body,
    preconditions::expected,
    problem::Problem,
    request::{Api, Target},
};
use crate::{
    Invocation,
    caller::{Caller, PASSED_ON},
    detached::finish,
};

pub(super) const IDEMPOTENCY_KEY: &str = "idempotency-key";
pub(super) const REPEATED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// The change is stored, but not all triggers that the caller waits for were called in time.
pub(super) const TRIGGERS_PENDING: HeaderName = HeaderName::from_static("x-oaas-triggers-pending");

pub(super) async fn invoke(
    Shared(api): Shared<Api>,
    caller: Caller,
    target: Target,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let idempotency_key = headers.get(IDEMPOTENCY_KEY);
    let passed_on = PASSED_ON.into_iter().filter_map(|name| {
        headers.get(name).map(|value| (HeaderName::from_static(name), value.clone()))
    });
    let call = Invocation {
        collection: target.collection().map(str::to_owned),
        id: target.id()?,
        method: target.method(),
        args: if body.is_empty() { Value::Null } else { body.json()? },
        caller: caller.access,
        idempotency_key: idempotency_key.map(|it| it.to_str().unwrap_or_default().to_owned()),
        expected: expected(&api.grid, &headers)?,
        origin: caller.origin,
        headers: passed_on.collect(),
    };
    let grid = api.grid.clone();
    let outcome = finish(async move { grid.invoke(&call).await }).await?;
    let mut response = Json(outcome.result).into_response();
    let yes = HeaderValue::from_static("true");
    if let Some(version) = outcome.version
        && let Ok(etag) = HeaderValue::from_str(&api.grid.etag(version))
    {
        response.headers_mut().insert(ETAG, etag);
    }
    if outcome.repeated {
        response.headers_mut().insert(REPEATED, yes.clone());
    }
    if outcome.triggers_pending {
        response.headers_mut().insert(TRIGGERS_PENDING, yes);
    }
    Ok(response)
}
