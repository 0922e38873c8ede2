//! `oprc grid events`: events whose triggered calls failed.

use anyhow::Result;
use clap::Args;
use hyper::Method;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    connection::ApiArgs,
    grid::{GridArgs, GridRequest, Retry},
    output::{Column, duration, note},
};

const PARKED: &str = "/events/parked";

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    #[command(flatten)]
    grid: GridArgs,
    /// Deliver a parked event again; can be repeated.
    #[arg(long, value_name = "KEY")]
    retry: Vec<String>,
    /// Delete a parked event, so that later ones are delivered; can be repeated.
    #[arg(long, value_name = "KEY")]
    discard: Vec<String>,
    #[command(flatten)]
    api: ApiArgs,
}

/// A parked event as the data grid returns it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
struct ParkedEvent {
    key: String,
    trigger: String,
    reason: String,
    attempts: u32,
    /// Milliseconds since 1970.
    at: i64,
}

const COLUMNS: &[Column<ParkedEvent>] = &[
    ("KEY", |it| it.key.clone()),
    ("TRIGGER", |it| it.trigger.clone()),
    ("ATTEMPTS", |it| it.attempts.to_string()),
    ("AGE", |it| {
        Timestamp::from_millisecond(it.at)
            .map_or_else(|_| String::new(), |at| duration::age(&at.to_string()))
    }),
    ("REASON", |it| it.reason.clone()),
];

pub(super) async fn run(command: EventsArgs) -> Result<()> {
    let EventsArgs { grid, retry, discard, api } = command;
    let grid = grid.open(&api.connection).await?;
    for (action, keys, done) in [("retry", &retry, "retried"), ("discard", &discard, "discarded")] {
        for key in keys {
            // A repeated request would not find the event.
            let path = format!("{PARKED}/{action}");
            let request = GridRequest::new(Method::POST, path, Retry::IfNotApplied);
            grid.send(&request.body(serde_json::to_vec(&json!({"key": key}))?)).await?;
            note(&format!("event {key} {done}"));
        }
    }
    if !retry.is_empty() || !discard.is_empty() {
        return Ok(());
    }
    let parked: Vec<ParkedEvent> = grid.get(PARKED.to_owned()).await?;
    api.show.list(&parked, |it| it.key.clone(), COLUMNS, &[])
}
