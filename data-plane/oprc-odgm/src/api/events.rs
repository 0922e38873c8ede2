//! Parked events: their function keeps refusing them.

use axum::{
    Json,
    extract::State as Shared,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use serde::Deserialize;

use super::{body::Body, problem::Problem, request::Api};
use crate::{Error, Grid, caller::Caller, detached::finish, outbox};

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
    api: Shared<Api>,
    caller: Caller,
    body: Body,
) -> Result<Response, Problem> {
    change(api, &caller, &body, |grid, key| async move { outbox::retry(&grid, &key).await }).await
}

pub(super) async fn discard(
    api: Shared<Api>,
    caller: Caller,
    body: Body,
) -> Result<Response, Problem> {
    change(api, &caller, &body, |grid, key| async move { outbox::discard(&grid, &key).await }).await
}

/// Changes the parked event that the body names.
async fn change<F: Future<Output = Result<(), Error>> + Send + 'static>(
    Shared(Api { grid, .. }): Shared<Api>,
    caller: &Caller,
    body: &Body,
    change: impl FnOnce(Grid, String) -> F,
) -> Result<Response, Problem> {
    caller.require_internal(WHAT)?;
    let ParkedKey { key } = body.json()?;
    finish(change(grid, key)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
