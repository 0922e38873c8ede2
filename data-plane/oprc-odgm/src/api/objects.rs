//! Objects by id, and lists of them.

use axum::{
    Json,
    extract::{Query, State as Shared, rejection::QueryRejection},
    http::{
        HeaderMap, HeaderName, HeaderValue, StatusCode,
        header::{ACCEPT, ETAG, LOCATION},
    },
    response::{IntoResponse as _, Response},
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use super::{
    body::Body,
    calls::IDEMPOTENCY_KEY,
    new_object_id::new_object_id,
    preconditions::expected,
    problem::Problem,
    request::{Api, Target, query},
    streams,
};
use crate::{
    Error, Expected, Grid, Object, ObjectId, caller::Caller, detached::finish, references::Resolved,
};

const DEFAULT_PAGE: usize = 100;

type Answer = Result<Response, Problem>;

fn etag(grid: &Grid, version: u64) -> [(HeaderName, String); 1] {
    [(ETAG, grid.etag(version))]
}

fn object(grid: &Grid, status: StatusCode, object: Object) -> Response {
    (status, etag(grid, object.version), Json(object)).into_response()
}

/// Names, separated by commas.
fn names(text: &str) -> Vec<&str> {
    text.split(',').filter(|it| !it.is_empty()).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadQuery {
    /// Names of keys, separated by commas.
    keys: Option<String>,
    /// Names of references, separated by commas.
    resolve: Option<String>,
    /// Whether an older state is accepted.
    #[serde(default)]
    stale: bool,
}

/// An object with those that it refers to.
#[derive(Serialize)]
struct ResolvedObject {
    #[serde(flatten)]
    object: Object,
    #[serde(flatten)]
    references: Resolved,
}

pub(super) async fn read(
    Shared(api): Shared<Api>,
    caller: Caller,
    target: Target,
    parameters: Result<Query<ReadQuery>, QueryRejection>,
) -> Answer {
    caller.permit_data(&api.grid.class())?;
    let (grid, parameters) = (&api.grid, query(parameters)?);
    let mut found = if parameters.stale {
        grid.get_stale(target.collection(), &target.id()?).await?
    } else {
        grid.get(target.collection(), &target.id()?).await?
    };
    let resolve = parameters.resolve.as_deref().map(names).unwrap_or_default();
    let references = grid.resolve(&found.state, &resolve, caller.access).await?;
    if let Some(keys) = &parameters.keys {
        found.state.retain(|key, _| keys.split(',').any(|it| it == key));
    }
    if resolve.is_empty() {
        return Ok(object(grid, StatusCode::OK, found));
    }
    let etag = etag(grid, found.version);
    Ok((etag, Json(ResolvedObject { object: found, references })).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    #[serde(default)]
    prefix: String,
    after: Option<String>,
    limit: Option<usize>,
    #[serde(default)]
    watch: bool,
}

pub(super) async fn list(
    Shared(api): Shared<Api>,
    caller: Caller,
    target: Target,
    headers: HeaderMap,
    parameters: Result<Query<ListQuery>, QueryRejection>,
) -> Answer {
    caller.permit_data(&api.grid.class())?;
    let ListQuery { prefix, after, limit, watch } = query(parameters)?;
    let accepted = headers.get(ACCEPT).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let is_stream = accepted.contains(streams::NDJSON);
    if (watch || is_stream) && (after.is_some() || limit.is_some()) {
        let reason = "after and limit are for pages, not for streams";
        return Err(Problem::invalid("the query", &reason));
    }
    if watch {
        return streams::watch(&api.grid, target.collection(), &prefix);
    }
    if is_stream {
        return streams::list(&api.grid, target.collection(), &prefix);
    }
    let limit = limit.unwrap_or(DEFAULT_PAGE);
    let page = api.grid.list(target.collection(), &prefix, after.as_deref(), limit).await?;
    Ok(Json(page).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchGet {
    ids: Vec<String>,
}

pub(super) async fn batch_get(
    Shared(api): Shared<Api>,
    caller: Caller,
    target: Target,
    body: Body,
) -> Answer {
    caller.permit_data(&api.grid.class())?;
    let BatchGet { ids } = body.json()?;
    let ids: Result<Vec<_>, _> = ids.iter().map(|it| ObjectId::parse(it)).collect();
    Ok(Json(api.grid.batch_get(target.collection(), &ids?).await?).into_response())
}

pub(super) async fn create(
    Shared(api): Shared<Api>,
    caller: Caller,
    target: Target,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    caller.permit_data(&api.grid.class())?;
    let state = body.json()?;
    let key = headers.get(IDEMPOTENCY_KEY).map(HeaderValue::as_bytes);
    let id = new_object_id(&api.grid.class(), target.collection(), key)?;
    let has_key = key.is_some();
    let collection = target.collection().map(str::to_owned);
    let location = match &collection {
        Some(collection) => {
            let collection = utf8_percent_encode(collection, NON_ALPHANUMERIC);
            format!("/collections/{collection}/objects/{id}")
        }
        None => format!("/objects/{id}"),
    };
    let grid = api.grid.clone();
    let work = async move {
        let collection = collection.as_deref();
        match grid.put(collection, &id, state, Expected::Absent).await {
            // Created by an earlier call with the same idempotency key.
            Err(Error::Changed { .. }) if has_key => grid.get(collection, &id).await,
            outcome => outcome,
        }
    };
    let mut response = object(&api.grid, StatusCode::CREATED, finish(work).await?);
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

pub(super) async fn replace(
    Shared(api): Shared<Api>,
    caller: Caller,
    target: Target,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let id = target.id()?;
    caller.permit_write(&api.grid, target.collection(), &id)?;
    let (grid, state, expected) = (api.grid.clone(), body.json()?, expected(&api.grid, &headers)?);
    let work = async move { grid.put(target.collection(), &id, state, expected).await };
    Ok(object(&api.grid, StatusCode::OK, finish(work).await?))
}

pub(super) async fn change(
    Shared(api): Shared<Api>,
    caller: Caller,
    target: Target,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let id = target.id()?;
    caller.permit_write(&api.grid, target.collection(), &id)?;
    let (grid, changes, expected) =
        (api.grid.clone(), body.json()?, expected(&api.grid, &headers)?);
    let work = async move { grid.patch(target.collection(), &id, changes, expected).await };
    Ok(object(&api.grid, StatusCode::OK, finish(work).await?))
}

pub(super) async fn delete(
    Shared(api): Shared<Api>,
    caller: Caller,
    target: Target,
    headers: HeaderMap,
) -> Answer {
    let id = target.id()?;
    caller.permit_write(&api.grid, target.collection(), &id)?;
    let (grid, expected) = (api.grid.clone(), expected(&api.grid, &headers)?);
    finish(async move { grid.delete(target.collection(), &id, expected).await }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
