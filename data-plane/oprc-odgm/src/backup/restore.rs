//! Restores a backup into an empty grid.

use axum::{
    Json,
    body::Body,
    extract::{Query, State as Shared, rejection::QueryRejection},
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use oprc_cp_storage::{Check, Error as StoreError, MAX_BYTES, Transaction};
use serde::Deserialize;
use serde_json::json;

use super::{BackupEnd, BackupHeader, BackupRecord, FORMAT, PREFIXES, check_record_member};
use crate::{
    Error, Grid,
    api::Problem,
    macros::RunRecord,
    record::{
        EVENTS, EventRecord, INVOCATIONS, InvocationRecord, OBJECTS, ObjectRecord, PARKED,
        ParkedRecord, RUNS, decode, encode, escape_collection, period_of_key,
    },
};

/// Names the backup that is restored, so that the same one can be restored again after an interruption.
const RESTORED: &str = "m/restored";
/// Larger than any record.
const MAX_LINE: usize = 4 << 20;
/// Records of one transaction.
const BATCH: usize = 50;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RestoreQuery {
    #[serde(default)]
    others: OtherMembers,
}

/// What happens to the records of objects of other members.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OtherMembers {
    /// The backup is refused.
    #[default]
    Refuse,
    /// They aren't restored.
    Skip,
}

pub(super) async fn restore(
    Shared(grid): Shared<Grid>,
    query: Result<Query<RestoreQuery>, QueryRejection>,
    body: Body,
) -> Result<Response, Problem> {
    let Query(RestoreQuery { others }) = query.map_err(|it| Problem::invalid("the query", &it))?;
    let mut lines = Lines { body, buffer: BytesMut::new(), number: 0 };
    let first = lines.next().await?.ok_or_else(|| invalid(1, "is missing"))?;
    let header: BackupHeader = parse(1, &first)?;
    check_header(&grid, &header)?;
    begin(&grid, &header).await?;
    let (mut batch, mut records, mut skipped) = (Batch::default(), 0, 0);
    loop {
        let Some(text) = lines.next().await? else {
            return Err(invalid(lines.number + 1, "is missing: the backup is incomplete"));
        };
        if let Ok(BackupEnd { end: true, records: expected }) = serde_json::from_slice(&text) {
            batch.commit(&grid).await?;
            let found = records + skipped;
            if expected != found {
                let reason = format!("has {expected} records, but there were {found}");
                return Err(invalid(lines.number, &reason));
            }
            let restored = json!({"records": records, "skipped": skipped});
            return Ok((StatusCode::OK, Json(restored)).into_response());
        }
        let record: BackupRecord = parse(lines.number, &text)?;
        let value = check_record(&header, &record).map_err(|it| invalid(lines.number, &it))?;
        if let Err(error) = check_record_member(&grid.class(), &record.key) {
            if others == OtherMembers::Refuse {
                return Err(invalid(lines.number, &error.to_string()));
            }
            skipped += 1;
            continue;
        }
        if batch.is_full(&value) {
            std::mem::take(&mut batch).commit(&grid).await?;
        }
        batch.add(record.key, value);
        records += 1;
    }
}

fn invalid(line: usize, reason: &str) -> Problem {
    Problem::invalid(&format!("line {line}"), &reason)
}

fn parse<T: serde::de::DeserializeOwned>(line: usize, text: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(text).map_err(|error| invalid(line, &error.to_string()))
}

fn check_header(grid: &Grid, header: &BackupHeader) -> Result<(), Problem> {
    let class = grid.class();
    if header.backup != FORMAT {
        let reason = format!("has the format {}; expected: {FORMAT}", header.backup);
        return Err(invalid(1, &reason));
    }
    match header.collections.iter().find(|it| !class.collections.contains(it)) {
        Some(unknown) => {
            let expected = class.collections.join(", ");
            Err(invalid(1, &format!("has the collection {unknown:?}; expected: {expected}")))
        }
        None => Ok(()),
    }
}

/// Fails unless the grid is empty, or the restoration of the same backup was interrupted.
async fn begin(grid: &Grid, header: &BackupHeader) -> Result<(), Problem> {
    let store = grid.store();
    let own = encode(header)?;
    let occupied = || {
        let detail = "a backup can be restored only into an empty grid";
        Problem::new(StatusCode::CONFLICT, "NOT_EMPTY", detail.to_owned())
    };
    if let Some(begun) = store.get(RESTORED).await.map_err(Error::from)? {
        return if begun.value == own { Ok(()) } else { Err(occupied()) };
    }
    // Results and runs of objects that were deleted don't matter.
    for prefix in [OBJECTS, EVENTS, PARKED] {
        let page = store.range(prefix, None, 1).await.map_err(Error::from)?;
        if !page.entries.is_empty() {
            return Err(occupied());
        }
    }
    let transaction = Transaction::new().check(RESTORED, Check::Absent).put(RESTORED, own);
    match store.commit(transaction).await {
        Err(StoreError::Conflict { .. }) => Err(occupied()),
        other => Ok(other.map(drop).map_err(Error::from)?),
    }
}

/// The value of a record that belongs to a collection of the backup.
fn check_record(header: &BackupHeader, record: &BackupRecord) -> Result<Vec<u8>, String> {
    let BackupRecord { key, value } = record;
    let text = serde_json::to_vec(value).map_err(|error| error.to_string())?;
    let kind = PREFIXES.into_iter().find(|it| key.starts_with(it)).unwrap_or_default();
    let error = match kind {
        OBJECTS => decode::<ObjectRecord>(key, &text).err(),
        EVENTS => decode::<EventRecord>(key, &text).err(),
        PARKED => decode::<ParkedRecord>(key, &text).err(),
        INVOCATIONS if period_of_key(key).is_some() => decode::<InvocationRecord>(key, &text).err(),
        RUNS => decode::<RunRecord>(key, &text).err(),
        _ => {
            let prefixes = PREFIXES.join(", ");
            return Err(format!("has the key {key:?}; expected: one that starts with {prefixes}"));
        }
    };
    if let Some(error) = error {
        return Err(error.to_string());
    }
    // Their keys are digests.
    if [INVOCATIONS, RUNS].contains(&kind) {
        return Ok(text);
    }
    let object = key.trim_start_matches(PARKED).trim_start_matches(EVENTS);
    let belongs = |it: &String| object.starts_with(&format!("{OBJECTS}{}/", escape_collection(it)));
    if header.collections.iter().any(belongs) {
        return Ok(text);
    }
    Err(format!("has the key {key:?} of a collection that the backup does not name"))
}

/// Records of a transaction.
#[derive(Default)]
struct Batch {
    records: Vec<(String, Vec<u8>)>,
    bytes: usize,
}

impl Batch {
    fn is_full(&self, next: &[u8]) -> bool {
        // Keys and checks take the rest.
        self.records.len() >= BATCH || self.bytes + next.len() > MAX_BYTES / 2
    }

    fn add(&mut self, key: String, value: Vec<u8>) {
        self.bytes += value.len();
        self.records.push((key, value));
    }

    /// Stores the records that aren't there yet. Fails if one differs.
    async fn commit(self, grid: &Grid) -> Result<(), Problem> {
        if self.records.is_empty() {
            return Ok(());
        }
        let absent = |transaction: Transaction, (key, value): &(String, Vec<u8>)| {
            transaction.check(key, Check::Absent).put(key, value.clone())
        };
        let transaction = self.records.iter().fold(Transaction::new(), absent);
        match grid.store().commit(transaction).await {
            Ok(_) => {
                self.records.iter().for_each(|(key, value)| grid.count_restored(key, value.len()));
                return Ok(());
            }
            // Some may be there from an earlier attempt.
            Err(StoreError::Conflict { .. } | StoreError::UnknownOutcome { .. }) => {}
            Err(error) => return Err(Error::from(error).into()),
        }
        for (key, value) in self.records {
            let transaction =
                Transaction::new().check(&key, Check::Absent).put(&key, value.clone());
            match grid.store().commit(transaction).await {
                Ok(_) => grid.count_restored(&key, value.len()),
                Err(StoreError::Conflict { .. }) => {
                    let present = grid.store().get(&key).await.map_err(Error::from)?;
                    if present.is_none_or(|it| it.value != value) {
                        let detail = format!("{key} has changed since it was restored");
                        return Err(Problem::new(StatusCode::CONFLICT, "NOT_EMPTY", detail));
                    }
                }
                Err(error) => return Err(Error::from(error).into()),
            }
        }
        Ok(())
    }
}

/// The lines of a body.
struct Lines {
    body: Body,
    buffer: BytesMut,
    /// Of the last line, counted from 1.
    number: usize,
}

impl Lines {
    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        let mut searched = 0;
        loop {
            let rest = self.buffer.get(searched..).unwrap_or_default();
            if let Some(at) = rest.iter().position(|it| *it == b'\n') {
                self.number += 1;
                let line = self.buffer.split_to(searched + at + 1);
                return Ok(Some(line.freeze()));
            }
            searched = self.buffer.len();
            if searched > MAX_LINE {
                return Err(invalid(self.number + 1, "is too long"));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => return Err(Problem::invalid("the body", &error)),
                None if self.buffer.is_empty() => return Ok(None),
                None => {
                    self.number += 1;
                    return Ok(Some(self.buffer.split().freeze()));
                }
            }
        }
    }
}
