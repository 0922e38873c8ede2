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
use oprc_cp_storage::{Check, Error as StoreError, MAX_BYTES, Revision, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    BackupApi, BackupEnd, BackupHeader, BackupRecord, FORMAT, PREFIXES, check_record_member,
};
use crate::{
    Error, Grid,
    api::Problem,
    macros::RunRecord,
    record::{
        EVENTS, EventRecord, INVOCATIONS, InvocationRecord, OBJECTS, ObjectRecord, PARKED,
        ParkedRecord, RUNS, decode, encode, escape_collection, period_of_key,
    },
};

/// The key of the [`RestoreRecord`].
const RESTORED: &str = "m/restored";
/// Larger than any record.
const MAX_LINE: usize = 4 << 20;
/// Records of one transaction.
const BATCH: usize = 50;

/// The backup that was restored last. Its restoration can be continued after an interruption, but isn't
/// repeated: objects may have been deleted since it was complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RestoreRecord {
    #[serde(flatten)]
    header: BackupHeader,
    #[serde(default)]
    is_complete: bool,
}

/// How a request to restore a backup is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RestoreAction {
    Begin,
    Continue,
    /// The same backup was restored: the client may not have got the response.
    Nothing,
    Refuse,
}

fn restore_action(
    last: Option<&RestoreRecord>,
    header: &BackupHeader,
    is_empty: bool,
) -> RestoreAction {
    match last {
        Some(last) if last.header == *header && last.is_complete => RestoreAction::Nothing,
        Some(last) if last.header == *header => RestoreAction::Continue,
        // Also if another backup couldn't be restored. Requests that still do fail by the version of the
        // record.
        _ if is_empty => RestoreAction::Begin,
        _ => RestoreAction::Refuse,
    }
}

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
    Shared(api): Shared<BackupApi>,
    query: Result<Query<RestoreQuery>, QueryRejection>,
    body: Body,
) -> Result<Response, Problem> {
    let grid = api.permitted()?;
    let Query(RestoreQuery { others }) = query.map_err(|it| Problem::invalid("the query", &it))?;
    let mut lines = Lines { body, buffer: BytesMut::new(), number: 0 };
    let first = lines.next().await?.ok_or_else(|| invalid(1, "is missing"))?;
    let header: BackupHeader = parse(1, &first)?;
    check_header(grid, &header)?;
    let mut restoration = Restoration::begin(grid, &header).await?;
    let (mut batch, mut records, mut skipped) = (Batch::default(), 0, 0);
    loop {
        let Some(text) = lines.next().await? else {
            return Err(invalid(lines.number + 1, "is missing: the backup is incomplete"));
        };
        if let Ok(BackupEnd { end: true, records: expected }) = serde_json::from_slice(&text) {
            restoration.store(batch).await?;
            let found = records + skipped;
            if expected != found {
                let reason = format!("has {expected} records, but there were {found}");
                return Err(invalid(lines.number, &reason));
            }
            let before = restoration.finish().await? == Finished::Before;
            let body = json!({"records": records, "skipped": skipped, "restoredBefore": before});
            return Ok((StatusCode::OK, Json(body)).into_response());
        }
        let record: BackupRecord = parse(lines.number, &text)?;
        let value = check_record(&header, &record).map_err(|it| invalid(lines.number, &it))?;
        match check_record_member(&grid.class(), &record.key) {
            Ok(()) => {}
            Err(Error::OtherMember(_)) if others == OtherMembers::Skip => {
                skipped += 1;
                continue;
            }
            Err(error) => return Err(invalid(lines.number, &error.to_string())),
        }
        if batch.is_full(&value) {
            restoration.store(std::mem::take(&mut batch)).await?;
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

fn not_empty(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::CONFLICT, "NOT_EMPTY", detail.into())
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
}

/// Whether this request has restored the backup, or an earlier one.
#[derive(PartialEq, Eq)]
enum Finished {
    Now,
    Before,
}

/// Stores the records of a backup.
struct Restoration<'a> {
    grid: &'a Grid,
    header: &'a BackupHeader,
    /// The version of the [`RestoreRecord`], which every transaction checks: nothing is stored after the
    /// restoration is complete. None if it is.
    version: Option<Revision>,
}

impl<'a> Restoration<'a> {
    /// Fails unless the grid is empty, or the restoration of the same backup was begun before.
    async fn begin(grid: &'a Grid, header: &'a BackupHeader) -> Result<Self, Problem> {
        let last = last_restored(grid).await?;
        let record = last.as_ref().map(|(record, _)| record);
        let version = match restore_action(record, header, is_empty(grid).await?) {
            RestoreAction::Nothing => None,
            RestoreAction::Continue => last.map(|(_, version)| version),
            RestoreAction::Refuse => {
                return Err(not_empty("a backup can be restored only into an empty grid"));
            }
            RestoreAction::Begin => {
                let check = last.map_or(Check::Absent, |(_, version)| Check::Version(version));
                let record = RestoreRecord { header: header.clone(), is_complete: false };
                let begun =
                    Transaction::new().check(RESTORED, check).put(RESTORED, encode(&record)?);
                let version = match grid.store().commit(begun).await {
                    Err(StoreError::Conflict { .. }) => {
                        return Err(not_empty("another backup is being restored"));
                    }
                    other => other.map_err(Error::from)?,
                };
                // A request that restored another backup may have stored something before that.
                if !is_empty(grid).await? {
                    return Err(not_empty("another backup is being restored"));
                }
                Some(version)
            }
        };
        Ok(Self { grid, header, version })
    }

    /// Stores the records that aren't there yet. Fails if one differs.
    async fn store(&mut self, batch: Batch) -> Result<(), Problem> {
        let Some(version) = self.version.filter(|_| !batch.records.is_empty()) else {
            return Ok(());
        };
        if let Some(replica) = self.grid.replica() {
            replica.require_space()?;
        }
        match self.grid.store().commit(absent(version, &batch.records)).await {
            Ok(_) => {
                self.count(&batch.records);
                return Ok(());
            }
            // Some may be there from an earlier attempt.
            Err(StoreError::Conflict { .. } | StoreError::UnknownOutcome { .. }) => {}
            Err(error) => return Err(Error::from(error).into()),
        }
        for record in batch.records.chunks(1) {
            self.store_single(record).await?;
        }
        Ok(())
    }

    async fn store_single(&mut self, record: &[(String, Vec<u8>)]) -> Result<(), Problem> {
        let (Some(version), [(key, value)]) = (self.version, record) else { return Ok(()) };
        match self.grid.store().commit(absent(version, record)).await {
            Ok(_) => self.count(record),
            Err(StoreError::Conflict { .. }) => {
                if self.is_finished_by_another().await? {
                    self.version = None;
                    return Ok(());
                }
                let present = self.grid.store().get(key).await.map_err(Error::from)?;
                if present.is_none_or(|it| it.value != *value) {
                    return Err(not_empty(format!("{key} has changed since it was restored")));
                }
            }
            Err(error) => return Err(Error::from(error).into()),
        }
        Ok(())
    }

    fn count(&self, records: &[(String, Vec<u8>)]) {
        for (key, value) in records {
            self.grid.count_restored(key, value.len());
        }
    }

    async fn is_finished_by_another(&self) -> Result<bool, Problem> {
        let last = last_restored(self.grid).await?;
        Ok(last.is_some_and(|(it, _)| it.header == *self.header && it.is_complete))
    }

    async fn finish(self) -> Result<Finished, Problem> {
        let Some(version) = self.version else { return Ok(Finished::Before) };
        let record = RestoreRecord { header: self.header.clone(), is_complete: true };
        let finished = Transaction::new()
            .check(RESTORED, Check::Version(version))
            .put(RESTORED, encode(&record)?);
        match self.grid.store().commit(finished).await {
            Ok(_) => Ok(Finished::Now),
            Err(_) if self.is_finished_by_another().await? => Ok(Finished::Before),
            Err(error) => Err(Error::from(error).into()),
        }
    }
}

/// Stores records that must not be there, as part of a restoration.
fn absent(restoration: Revision, records: &[(String, Vec<u8>)]) -> Transaction {
    let begun = Transaction::new().check(RESTORED, Check::Version(restoration));
    records.iter().fold(begun, |transaction, (key, value)| {
        transaction.check(key, Check::Absent).put(key, value.clone())
    })
}

async fn last_restored(grid: &Grid) -> Result<Option<(RestoreRecord, Revision)>, Problem> {
    let found = grid.store().get(RESTORED).await.map_err(Error::from)?;
    let Some(found) = found else { return Ok(None) };
    Ok(Some((decode(RESTORED, &found.value)?, found.version)))
}

/// Results and runs of objects that were deleted don't matter.
async fn is_empty(grid: &Grid) -> Result<bool, Problem> {
    for prefix in [OBJECTS, EVENTS, PARKED] {
        let page = grid.store().range(prefix, None, 1).await.map_err(Error::from)?;
        if !page.entries.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complete_restoration_is_not_repeated() {
        let header = |revision| BackupHeader {
            backup: FORMAT,
            class: "Cart".to_owned(),
            collections: Vec::new(),
            epoch: 1,
            revision,
        };
        let last = |is_complete| RestoreRecord { header: header(1), is_complete };
        for (last, revision, is_empty, expected) in [
            (None, 1, true, RestoreAction::Begin),
            (None, 1, false, RestoreAction::Refuse),
            (Some(last(false)), 1, false, RestoreAction::Continue),
            (Some(last(false)), 1, true, RestoreAction::Continue),
            (Some(last(false)), 2, true, RestoreAction::Begin),
            (Some(last(false)), 2, false, RestoreAction::Refuse),
            (Some(last(true)), 1, false, RestoreAction::Nothing),
            (Some(last(true)), 1, true, RestoreAction::Nothing),
            (Some(last(true)), 2, true, RestoreAction::Begin),
            (Some(last(true)), 2, false, RestoreAction::Refuse),
        ] {
            let action = restore_action(last.as_ref(), &header(revision), is_empty);
            assert_eq!(action, expected, "{last:?} {revision} {is_empty}");
        }
    }
}
