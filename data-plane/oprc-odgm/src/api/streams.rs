//! Streams of objects, one JSON document in each line.

use axum::{
    body::{Body, Bytes},
    http::header::CONTENT_TYPE,
    response::{IntoResponse as _, Response},
};
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use serde::Serialize;
use serde_json::json;

use super::problem::Problem;
use crate::{Error, Grid};

pub(super) const NDJSON: &str = "application/x-ndjson";

pub(super) fn list(
    grid: &Grid,
    collection: Option<&str>,
    prefix: &str,
) -> Result<Response, Problem> {
    // A stream that breaks off shows the client that it isn't complete.
    let pages = grid.list_stream(collection, prefix)?.map_ok(|page| lines(&page));
    Ok(response(pages.map_err(std::io::Error::other)))
}

/// A failure is the last line, because watches have no end.
pub(super) fn watch(
    grid: &Grid,
    collection: Option<&str>,
    prefix: &str,
) -> Result<Response, Problem> {
    let events = grid.watch_stream(collection, prefix)?.map(|events| match events {
        Ok(events) => lines(&events),
        Err(error) => lines(&[failure(&error)]),
    });
    Ok(response(events.map(Ok)))
}

fn failure(error: &Error) -> serde_json::Value {
    json!({"type": "ERROR", "reason": error.reason(), "detail": error.to_string()})
}

fn lines<T: Serialize>(all: &[T]) -> Bytes {
    let mut text = Vec::new();
    for one in all {
        // Writing to memory doesn't fail.
        if serde_json::to_writer(&mut text, one).is_ok() {
            text.push(b'\n');
        }
    }
    text.into()
}

fn response(lines: impl Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static) -> Response {
    ([(CONTENT_TYPE, NDJSON)], Body::from_stream(lines)).into_response()
}
