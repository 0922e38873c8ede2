//! Backup and restore: all objects, events, results for idempotency keys and runs of macros at one revision,
//! as lines of JSON.
//!
//! The first line describes the backup, the last one has the number of records. A backup can be restored
//! into an empty grid with another engine or another number of partitions. A run of a macro is part of it if
//! its caller can repeat the call, which then continues the run.

mod restore;

use std::sync::Arc;

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{DefaultBodyLimit, State as Shared},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
    routing::post,
};
use futures::{StreamExt as _, stream};
use oprc_cp_storage::Snapshot;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Error, Grid,
    api::Problem,
    class::{Access, Class},
    macros::RunRecord,
    record::{EVENTS, INVOCATIONS, OBJECTS, PARKED, RUNS, decode, objects_prefix, parse_event_key},
};

/// The version of the format.
const FORMAT: u32 = 1;
/// Records that are read at once.
const PAGE: usize = 64;
const NDJSON: &str = "application/x-ndjson";
/// The prefixes of the keys of all records of a backup, in the order in which they are restored: calls may
/// be repeated, and events delivered, before the end.
const PREFIXES: [&str; 5] = [INVOCATIONS, RUNS, PARKED, EVENTS, OBJECTS];

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BackupHeader {
    backup: u32,
    class: String,
    collections: Vec<String>,
    /// Of the store: with the revision, it identifies the backup.
    #[serde(default)]
    epoch: u32,
    revision: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct BackupRecord {
    key: String,
    value: Value,
}

/// The last line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct BackupEnd {
    end: bool,
    records: u64,
}

/// What the handlers need.
#[derive(Clone, Debug)]
struct BackupApi {
    grid: Grid,
    caller: Access,
}

impl BackupApi {
    /// The grid, if the caller may read and write all of its objects.
    fn permitted(&self) -> Result<&Grid, Problem> {
        match self.grid.class().permit_data(self.caller) {
            Ok(()) => Ok(&self.grid),
            Err(error) => {
                let detail = format!("{error}; the admin port of the grid serves its backups");
                Err(Problem::new(StatusCode::FORBIDDEN, "ADMIN_ONLY", detail))
            }
        }
    }
}

/// Routes for callers of a port with this access.
pub(crate) fn router(grid: Grid, caller: Access) -> Router {
    Router::new()
        .route("/backup", post(backup))
        .route("/restore", post(restore::restore).layer(DefaultBodyLimit::disable()))
        .with_state(BackupApi { grid, caller })
}

/// Where the next page of a backup begins.
struct Position {
    snapshot: Snapshot,
    prefixes: std::slice::Iter<'static, &'static str>,
    prefix: Option<&'static str>,
    class: Arc<Class>,
    after: Option<String>,
    records: u64,
}

async fn backup(Shared(api): Shared<BackupApi>) -> Result<Response, Problem> {
    let grid = api.permitted()?;
    let snapshot = grid.store().snapshot().await.map_err(Error::from)?;
    let class = grid.class();
    let header = BackupHeader {
        backup: FORMAT,
        class: class.name.clone(),
        collections: class.collections.clone(),
        epoch: grid.epoch(),
        revision: snapshot.revision().0,
    };
    let mut prefixes = PREFIXES.iter();
    let prefix = prefixes.next().copied();
    let position = Position { snapshot, prefixes, prefix, class, after: None, records: 0 };
    let pages = stream::unfold(Some(position), async |position| {
        match next_page(position?).await {
            Ok((page, position)) => Some((Ok(page), position)),
            // The stream breaks off, so that the client notices.
            Err(error) => {
                tracing::warn!(%error, "backup failed");
                Some((Err(error), None))
            }
        }
    });
    let first = stream::iter([line(&header)]);
    let body = Body::from_stream(first.chain(pages));
    Ok(([(CONTENT_TYPE, NDJSON)], body).into_response())
}

fn line(value: &impl Serialize) -> Result<Bytes, Error> {
    let text = serde_json::to_vec(value).map_err(|error| Error::Corrupt(error.to_string()));
    text.map(|mut text| {
        text.push(b'\n');
        text.into()
    })
}

/// The lines of a page; also the last line after the last page.
async fn next_page(mut position: Position) -> Result<(Bytes, Option<Position>), Error> {
    let Some(prefix) = position.prefix else {
        return Ok((line(&BackupEnd { end: true, records: position.records })?, None));
    };
    let page = position.snapshot.range(prefix, position.after.as_deref(), PAGE).await?;
    let mut lines = Vec::new();
    for entry in &page.entries {
        match check_record_member(&position.class, &entry.key) {
            // Objects that other members have got since are theirs.
            Err(Error::OtherMember(_)) => continue,
            checked => checked?,
        }
        let Some(value) = backed_up(prefix, &entry.key, &entry.value)? else { continue };
        let record = BackupRecord { key: entry.key.clone(), value };
        lines.extend_from_slice(&line(&record)?);
        position.records += 1;
    }
    if page.more {
        position.after = page.entries.last().map(|it| it.key.clone());
    } else {
        (position.prefix, position.after) = (position.prefixes.next().copied(), None);
    }
    Ok((lines.into(), Some(position)))
}

/// Fails if another member has the object of a record. Records of calls don't name their object.
fn check_record_member(class: &Class, key: &str) -> Result<(), Error> {
    let key = key.strip_prefix(PARKED).unwrap_or(key);
    let object = parse_event_key(key).map_or(key, |(object, _)| object);
    let found = class.collections.iter().find_map(|collection| {
        let id = object.strip_prefix(&objects_prefix(collection))?;
        Some((collection, id))
    });
    found.map_or(Ok(()), |(collection, id)| class.check_member(collection, id))
}

/// The value of a record in a backup; none if it isn't part of it.
fn backed_up(prefix: &str, key: &str, value: &[u8]) -> Result<Option<Value>, Error> {
    if prefix != RUNS {
        return decode(key, value).map(Some);
    }
    let run = decode::<RunRecord>(key, value)?.interrupted();
    let value = run.map(serde_json::to_value).transpose();
    value.map_err(|error| Error::Corrupt(format!("{key}: {error}")))
}

#[cfg(test)]
mod tests;
