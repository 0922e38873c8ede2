//! Events that aren't delivered any more.

use axum::{
    Json,
    extract::State as Shared,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use serde::Deserialize;

use super::{body::Body, problem::Problem, request::Api};
use crate::{caller::Caller, detached::finish, outbox};

const WHAT: &str = "the list of parked events";

pub(super) async fn parked(
    Shared(Api { grid, .. }): Shared<Api>,
    caller: Caller,
) -> Result<Response, Problem> {
    caller.require_internal(WHAT)?;
    Ok(Json(outbox::parked(&grid).await?).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ParkedKey {
    key: String,
}

pub(super) async fn retry(
    Shared(Api { grid, .. }): Shared<Api>,
    caller: Caller,
    body: Body,
) -> Result<Response, Problem> {
    caller.require_internal(WHAT)?;
    let ParkedKey { key } = body.json()?;
    finish(async move { outbox::retry(&grid, &key).await }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) async fn discard(
    Shared(Api { grid, .. }): Shared<Api>,
    caller: Caller,
    body: Body,
) -> Result<Response, Problem> {
    caller.require_internal(WHAT)?;
    let ParkedKey { key } = body.json()?;
    finish(async move { outbox::discard(&grid, &key).await }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
