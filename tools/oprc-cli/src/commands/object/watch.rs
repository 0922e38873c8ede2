//! `oprc object watch`: follows the changes of objects, over interruptions of the stream.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Result, bail};
use clap::Args;
use hyper::header::ACCEPT;
use serde::{Deserialize, Serialize};
use tokio::{signal, time};

use super::{CollectionArgs, ObjectDocument};
use crate::{
    client::filtered,
    connection::ApiArgs,
    error::{CliError, is_unavailable},
    grid::{Grid, GridArgs, GridRequest, Lines, NDJSON, parse_json},
    output::{Format, OutputArgs, Tone, duration, note, paint, sanitize},
};

/// First and longest delay before the stream is reopened.
const RECONNECT_DELAY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

#[derive(Debug, Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    grid: GridArgs,
    #[command(flatten)]
    collection: CollectionArgs,
    /// Only objects whose ids start with this.
    #[arg(long)]
    prefix: Option<String>,
    /// Stop after this duration, such as 30s or 5m.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    limit: Option<Duration>,
    #[command(flatten)]
    api: ApiArgs,
}

pub(super) async fn run(command: Watch) -> Result<()> {
    let Watch { grid, collection, prefix, limit, api } = command;
    api.show.reject_formats(&[Format::Name, Format::Wide])?;
    let grid = grid.open(&api.connection).await?.with_collection(collection.collection);
    let query = [("watch", Some("true")), ("prefix", prefix.as_deref())];
    let request = GridRequest::get(filtered(&grid.objects(), &query));
    let request = request.header(ACCEPT, NDJSON);
    let followed = follow(&grid, &request, &api.show);
    let limited = async {
        match limit {
            Some(limit) => time::timeout(limit, followed).await.unwrap_or(Ok(())),
            None => followed.await,
        }
    };
    tokio::select! {
        outcome = limited => outcome,
        interrupted = signal::ctrl_c() => Ok(interrupted?),
    }
}

async fn follow(grid: &Grid, request: &GridRequest, show: &OutputArgs) -> Result<()> {
    let mut objects = WatchedObjects::default();
    let (mut delay, mut opened) = (RECONNECT_DELAY.0, false);
    loop {
        match grid.stream(request).await {
            Ok(mut lines) => {
                opened = true;
                objects.begin();
                let interrupted = print_changes(&mut lines, &mut objects, show).await;
                if let Err(error) = interrupted.map(|()| delay = RECONNECT_DELAY.0) {
                    // Others are about standard output or the content.
                    if !is_unavailable(&error) {
                        return Err(error);
                    }
                    note(&format!("{error:#}"));
                }
            }
            // Reconnects only after the first connection succeeded.
            Err(error) if opened && is_unavailable(&error) => {}
            Err(error) => return Err(error),
        }
        time::sleep(delay).await;
        delay = (delay * 2).min(RECONNECT_DELAY.1);
    }
}

async fn print_changes(
    lines: &mut Lines,
    objects: &mut WatchedObjects,
    show: &OutputArgs,
) -> Result<()> {
    while let Some(text) = lines.next().await? {
        if text.is_empty() {
            continue;
        }
        let change: ObjectChange = parse_json(&text)?;
        if change.kind == ChangeType::Error {
            bail!(CliError::Unavailable(change.detail));
        }
        for change in objects.apply(change) {
            show.print_item(&change, || line(&change))?;
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
enum ChangeType {
    Created,
    Updated,
    Deleted,
    /// All objects that were there at the start have been sent.
    Synced,
    /// The last line of a stream that breaks off.
    Error,
    /// Of a later version of the data grid.
    #[serde(other)]
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
struct ObjectChange {
    #[serde(rename = "type")]
    kind: ChangeType,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    object: Option<ObjectDocument>,
    /// Why the stream breaks off.
    #[serde(default, skip_serializing)]
    detail: String,
}

impl ObjectChange {
    fn new(kind: ChangeType, object: Option<ObjectDocument>) -> Self {
        Self { kind, object, detail: String::new() }
    }
}

/// A reopened stream starts with all objects again: only what has changed meanwhile is passed on.
#[derive(Debug, Default)]
struct WatchedObjects {
    versions: BTreeMap<String, u64>,
    /// Those that the present stream has not mentioned yet; `None` after it has sent all.
    unseen: Option<BTreeSet<String>>,
    synced: bool,
}

impl WatchedObjects {
    /// A stream was opened.
    fn begin(&mut self) {
        self.unseen = Some(self.versions.keys().cloned().collect());
    }

    fn apply(&mut self, change: ObjectChange) -> Vec<ObjectChange> {
        let ObjectChange { kind, object, .. } = change;
        match (kind, object) {
            (ChangeType::Synced, _) => self.finish(),
            (ChangeType::Error | ChangeType::Unknown, _) | (_, None) => Vec::new(),
            (ChangeType::Deleted, Some(object)) => {
                self.versions.remove(&object.id);
                self.seen(&object.id);
                vec![ObjectChange::new(kind, Some(object))]
            }
            (ChangeType::Created | ChangeType::Updated, Some(object)) => {
                self.seen(&object.id);
                let known = self.versions.insert(object.id.clone(), object.version);
                let kind = match known {
                    Some(version) if version == object.version => return Vec::new(),
                    Some(_) => ChangeType::Updated,
                    None => kind,
                };
                vec![ObjectChange::new(kind, Some(object))]
            }
        }
    }

    fn seen(&mut self, id: &str) {
        if let Some(unseen) = &mut self.unseen {
            unseen.remove(id);
        }
    }

    /// Objects that a reopened stream didn't mention were deleted.
    fn finish(&mut self) -> Vec<ObjectChange> {
        let gone = self.unseen.take().unwrap_or_default().into_iter().map(|id| {
            let version = self.versions.remove(&id).unwrap_or_default();
            let object = ObjectDocument { id, version, ..ObjectDocument::default() };
            ObjectChange::new(ChangeType::Deleted, Some(object))
        });
        let mut changes: Vec<_> = gone.collect();
        if !std::mem::replace(&mut self.synced, true) {
            changes.push(ObjectChange::new(ChangeType::Synced, None));
        }
        changes
    }
}

fn line(change: &ObjectChange) -> String {
    let Some(object) = &change.object else { return "SYNCED\n".to_owned() };
    let (kind, tone) = match change.kind {
        ChangeType::Created => ("CREATED", Tone::Good),
        ChangeType::Deleted => ("DELETED", Tone::Bad),
        _ => ("UPDATED", Tone::Faint),
    };
    let (kind, id) = (paint(tone, kind), sanitize(&object.id));
    match change.kind {
        ChangeType::Deleted => format!("{kind}  {id}\n"),
        _ => format!("{kind}  {id}  {}  {}\n", object.version, sanitize(&object.state())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn applied(objects: &mut WatchedObjects, kind: &str, id: &str, version: u64) -> Vec<String> {
        let object = json!({"id": id, "version": version, "state": {"n": version}});
        let change = match kind {
            "SYNCED" => json!({"type": kind}),
            _ => json!({"type": kind, "object": object}),
        };
        let changes = objects.apply(serde_json::from_value(change).unwrap());
        changes.iter().map(|it| anstream::adapter::strip_str(&line(it)).to_string()).collect()
    }

    #[test]
    fn a_reopened_stream_shows_what_has_changed_meanwhile() {
        let mut objects = WatchedObjects::default();
        objects.begin();
        assert_eq!(applied(&mut objects, "CREATED", "a", 1), ["CREATED  a  1  {\"n\":1}\n"]);
        assert_eq!(applied(&mut objects, "CREATED", "b", 2).len(), 1);
        assert_eq!(applied(&mut objects, "CREATED", "c", 3).len(), 1);
        assert_eq!(applied(&mut objects, "SYNCED", "", 0), ["SYNCED\n"]);
        assert_eq!(applied(&mut objects, "UPDATED", "a", 4), ["UPDATED  a  4  {\"n\":4}\n"]);
        assert_eq!(applied(&mut objects, "DELETED", "c", 5), ["DELETED  c\n"]);
        // Meanwhile `a` is updated, `b` deleted and `d` created.
        objects.begin();
        assert_eq!(applied(&mut objects, "CREATED", "a", 6), ["UPDATED  a  6  {\"n\":6}\n"]);
        assert_eq!(applied(&mut objects, "CREATED", "d", 7), ["CREATED  d  7  {\"n\":7}\n"]);
        assert_eq!(applied(&mut objects, "SYNCED", "", 0), ["DELETED  b\n"]);
        objects.begin();
        assert_eq!(applied(&mut objects, "CREATED", "a", 6), Vec::<String>::new());
        assert_eq!(applied(&mut objects, "HEARTBEAT", "a", 6), Vec::<String>::new());
    }
}
