//! The HTTP API: objects by id, and calls of their methods.

mod problem;

use std::{collections::HashMap, ops::Deref};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, Query, State as Shared},
    http::{
        HeaderMap, HeaderName, HeaderValue, StatusCode,
        header::{ETAG, IF_MATCH, IF_NONE_MATCH, LOCATION},
    },
    response::{IntoResponse, Response},
    routing::{get, post},
};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

pub(crate) use self::problem::Problem;
use crate::{
    Error, Expected, Grid, Invocation, Object, ObjectId,
    class::{Access, State},
    function::{CALL_CHAIN, TRIGGER_DEPTH},
    outbox,
};

const MAX_BODY: usize = 1 << 20;
const DEFAULT_PAGE: usize = 100;
const MAX_CHAIN: usize = 100;
const IDEMPOTENCY_KEY: &str = "idempotency-key";
const REPEATED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// Headers that functions get, too.
const PASSED_ON: [&str; 3] = ["x-correlation-id", "traceparent", "tracestate"];

type Answer = Result<Response, Problem>;

/// Routes for the first collection, and for each by its name.
pub fn router(grid: Grid) -> Router {
    let objects = Router::new()
        .route("/objects", get(list).post(create))
        .route("/objects/{id}", get(read).put(replace).patch(change).delete(delete))
        .route("/objects/{id}/{method}", post(invoke));
    Router::new()
        .merge(objects.clone())
        .nest("/collections/{collection}", objects)
        .route("/events/parked", get(parked))
        .route("/events/parked/retry", post(retry))
        .route("/events/parked/discard", post(discard))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(grid)
}

/// The parts of a path.
struct Target(HashMap<String, String>);

impl Target {
    fn collection(&self) -> Option<&str> {
        self.0.get("collection").map(String::as_str)
    }

    fn id(&self) -> Result<ObjectId, Error> {
        ObjectId::parse(self.0.get("id").map_or("", Deref::deref))
    }

    fn method(&self) -> String {
        self.0.get("method").cloned().unwrap_or_default()
    }
}

type Parts = Path<HashMap<String, String>>;

/// Finishes work even if the client goes: a change may have been stored, and its event must be
/// delivered.
async fn finish<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Problem> {
    let outcome = tokio::spawn(work).await;
    let outcome = outcome.unwrap_or_else(|error| Err(Error::UnknownOutcome(error.to_string())));
    Ok(outcome?)
}

fn json<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| Problem::invalid("the body", &error))
}

/// What `If-Match` and `If-None-Match` require.
fn expected(headers: &HeaderMap) -> Result<Expected, Problem> {
    let text = |name: HeaderName| {
        let value = headers.get(&name).map(|it| it.to_str().unwrap_or_default());
        value.map(|value| (name.to_string(), value.trim()))
    };
    match (text(IF_MATCH), text(IF_NONE_MATCH)) {
        (None, None) => Ok(Expected::Anything),
        (None, Some((_, "*"))) => Ok(Expected::Absent),
        (Some((_, "*")), None) => Ok(Expected::Exists),
        (Some((name, tag)), None) => {
            let version = tag.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
            let version = version.and_then(|it| it.parse().ok());
            let allowed = "must be * or the ETag of a version";
            let version =
                version.map(|it| if it == 0 { Expected::Absent } else { Expected::Version(it) });
            // The only object of a class has version 0 before it is written.
            version.ok_or_else(|| Problem::bad_header(&name, allowed))
        }
        (_, Some((name, _))) => Err(Problem::bad_header(&name, "must be *, without If-Match")),
    }
}

/// The objects in a header.
fn chain(text: &str) -> Vec<String> {
    let decoded = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
    text.split(',').filter(|it| !it.is_empty()).take(MAX_CHAIN).map(decoded).collect()
}

fn etag(version: u64) -> [(HeaderName, String); 1] {
    [(ETAG, format!("\"{version}\""))]
}

fn object(status: StatusCode, object: Object) -> Response {
    (status, etag(object.version), Json(object)).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadQuery {
    /// Names of keys, separated by commas.
    keys: Option<String>,
    /// Whether an older state is accepted.
    #[serde(default)]
    stale: bool,
}

async fn read(
    Shared(grid): Shared<Grid>,
    Path(parts): Parts,
    query: Result<Query<ReadQuery>, axum::extract::rejection::QueryRejection>,
) -> Answer {
    let target = Target(parts);
    let Query(query) = query.map_err(|it| Problem::invalid("the query", &it))?;
    let mut found = if query.stale {
        grid.get_stale(target.collection(), &target.id()?).await?
    } else {
        grid.get(target.collection(), &target.id()?).await?
    };
    if let Some(keys) = &query.keys {
        found.state.retain(|key, _| keys.split(',').any(|it| it == key));
    }
    Ok(object(StatusCode::OK, found))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    #[serde(default)]
    prefix: String,
    after: Option<String>,
    limit: Option<usize>,
}

async fn list(
    Shared(grid): Shared<Grid>,
    Path(parts): Parts,
    query: Result<Query<ListQuery>, axum::extract::rejection::QueryRejection>,
) -> Answer {
    let target = Target(parts);
    let Query(query) = query.map_err(|it| Problem::invalid("the query", &it))?;
    let limit = query.limit.unwrap_or(DEFAULT_PAGE);
    let page = grid.list(target.collection(), &query.prefix, query.after.as_deref(), limit).await?;
    Ok(Json(page).into_response())
}

async fn create(
    Shared(grid): Shared<Grid>,
    Path(parts): Parts,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let state: State = json(&body)?;
    let key = headers.get(IDEMPOTENCY_KEY).map(|key| hex::encode(Sha256::digest(key)));
    let id = key.as_ref().and_then(|it| it.get(..32)).map(str::to_owned);
    let id = ObjectId::parse(&id.unwrap_or_else(|| format!("{:032x}", fastrand::u128(..))))?;
    let target = Target(parts);
    let collection = target.collection().map(str::to_owned);
    let location = match &collection {
        Some(collection) => format!("/collections/{collection}/objects/{id}"),
        None => format!("/objects/{id}"),
    };
    let work = async move {
        let collection = collection.as_deref();
        match grid.put(collection, &id, state, Expected::Absent).await {
            // Created by an earlier call with the same idempotency key.
            Err(Error::Changed { .. }) if key.is_some() => grid.get(collection, &id).await,
            outcome => outcome,
        }
    };
    let mut response = object(StatusCode::CREATED, finish(work).await?);
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

async fn replace(
    Shared(grid): Shared<Grid>,
    Path(parts): Parts,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let (target, state, expected) = (Target(parts), json(&body)?, expected(&headers)?);
    let id = target.id()?;
    let work = async move { grid.put(target.collection(), &id, state, expected).await };
    Ok(object(StatusCode::OK, finish(work).await?))
}

async fn change(
    Shared(grid): Shared<Grid>,
    Path(parts): Parts,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let (target, changes, expected) = (Target(parts), json(&body)?, expected(&headers)?);
    let id = target.id()?;
    let work = async move { grid.patch(target.collection(), &id, changes, expected).await };
    Ok(object(StatusCode::OK, finish(work).await?))
}

async fn delete(Shared(grid): Shared<Grid>, Path(parts): Parts, headers: HeaderMap) -> Answer {
    let (target, expected) = (Target(parts), expected(&headers)?);
    let id = target.id()?;
    finish(async move { grid.delete(target.collection(), &id, expected).await }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn invoke(
    Shared(grid): Shared<Grid>,
    Path(parts): Parts,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let target = Target(parts);
    let idempotency_key = headers.get(IDEMPOTENCY_KEY);
    let idempotency_key = idempotency_key.map(|it| it.to_str().unwrap_or_default().to_owned());
    let text = |name: &HeaderName| headers.get(name).and_then(|it| it.to_str().ok());
    let passed_on = PASSED_ON.into_iter().filter_map(|name| {
        headers.get(name).map(|value| (HeaderName::from_static(name), value.clone()))
    });
    let call = Invocation {
        collection: target.collection().map(str::to_owned),
        id: target.id()?,
        method: target.method(),
        args: if body.is_empty() { Value::Null } else { json(&body)? },
        caller: Access::Internal,
        idempotency_key,
        expected: expected(&headers)?,
        depth: text(&TRIGGER_DEPTH).and_then(|it| it.parse().ok()).unwrap_or_default(),
        chain: chain(text(&CALL_CHAIN).unwrap_or_default()),
        headers: passed_on.collect(),
    };
    let outcome = finish(async move { grid.invoke(&call).await }).await?;
    let mut response = Json(outcome.result).into_response();
    if let Some(version) = outcome.version {
        response.headers_mut().extend(etag(version).map(|(name, value)| {
            (name, HeaderValue::from_str(&value).unwrap_or(HeaderValue::from_static("")))
        }));
    }
    if outcome.repeated {
        response.headers_mut().insert(REPEATED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

async fn parked(Shared(grid): Shared<Grid>) -> Answer {
    Ok(Json(outbox::parked(&grid).await?).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ParkedKey {
    key: String,
}

async fn retry(Shared(grid): Shared<Grid>, body: Bytes) -> Answer {
    let ParkedKey { key } = json(&body)?;
    finish(async move { outbox::retry(&grid, &key).await }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn discard(Shared(grid): Shared<Grid>, body: Bytes) -> Answer {
    let ParkedKey { key } = json(&body)?;
    finish(async move { outbox::discard(&grid, &key).await }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[cfg(test)]
mod tests;
