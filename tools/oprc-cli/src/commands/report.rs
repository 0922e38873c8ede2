//! `oprc report`: a diagnostics archive for bug reports, with secrets redacted.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    client::{Client, escape},
    connection::ConnectionArgs,
    output::{note, print, redact},
};

const LISTS: [&str; 6] =
    ["packages", "deployments", "class-runtimes", "orphans", "clusters", "functions"];
const MAX_HISTORIES: usize = 100;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Environment variable values, command lines, and fields whose names indicate secrets are redacted.\nReview the archive before you share it.\n\nExample:\n  oprc report --file report.tar"
)]
pub(crate) struct Command {
    /// Archive to write [default: oprc-report-TIME.tar].
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(crate) async fn run(command: Command) -> Result<()> {
    let now = Timestamp::now();
    let default = || format!("oprc-report-{}.tar", now.strftime("%Y%m%d-%H%M%S")).into();
    let file = command.file.unwrap_or_else(default);
    let context = command.connection.resolve()?;
    let client = command.connection.client().await?;
    let mut parts = collect(&client).await;
    let about = json!({
        "oprc": env!("CARGO_PKG_VERSION"),
        "server": context.server,
        "clusters": context.clusters.keys().collect::<Vec<_>>(),
        "at": now.as_second(),
    });
    parts.insert(0, ("about.json".to_owned(), about));
    let archive = create(&file).with_context(|| format!("creating {}", file.display()))?;
    write_archive(archive, parts, now.as_second())
        .with_context(|| format!("writing {}", file.display()))?;
    note("Known secrets were redacted; review the archive before you share it.");
    print(&format!("{}\n", file.display()))
}

/// Never overwrites a file; readable by its owner only.
fn create(file: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)
}

/// A part that can't be fetched contains the error instead.
async fn collect(client: &Client) -> Vec<(String, Value)> {
    let mut parts = Vec::new();
    let mut keys = Vec::new();
    for list in LISTS {
        let items = client.list::<Value>(&format!("/{list}")).await;
        if let ("deployments", Ok(items)) = (list, &items) {
            let key = |item: &Value| item.pointer("/deployment/key")?.as_str().map(str::to_owned);
            keys = items.iter().filter_map(key).take(MAX_HISTORIES).collect();
        }
        parts.push((format!("{list}.json"), or_error(items.map(Value::Array))));
    }
    for key in keys {
        let history = client.list::<Value>(&format!("/deployments/{}/history", escape(&key))).await;
        parts.push((format!("history/{}.json", escape(&key)), or_error(history.map(Value::Array))));
    }
    for (name, path) in [("ready", "/health/ready"), ("metrics", "/metrics")] {
        let text = client.text(path).await.map(Value::String);
        parts.push((format!("{name}.json"), or_error(text)));
    }
    parts
}

fn or_error(part: Result<Value>) -> Value {
    part.unwrap_or_else(|error| json!({"unavailable": format!("{error:#}")}))
}

/// Removes secrets from every part.
fn write_archive(to: impl std::io::Write, parts: Vec<(String, Value)>, at: i64) -> Result<()> {
    let mut archive = tar::Builder::new(to);
    for (name, mut part) in parts {
        redact(&mut part);
        let text = serde_json::to_string_pretty(&part)?;
        let mut header = tar::Header::new_gnu();
        header.set_size(u64::try_from(text.len())?);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(at).unwrap_or_default());
        archive.append_data(&mut header, format!("oprc-report/{name}"), text.as_bytes())?;
    }
    archive.into_inner()?.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn archive_is_readable_by_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.tar");
        let mode = create(&path).unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(create(&path).is_err(), "an existing file must not be overwritten");
    }

    #[test]
    fn archive_contains_no_secrets() {
        let part = json!([{"package": {"functions": [{"config": {"env": {"KEY": "canary-1"}}}]},
                           "token": "canary-2"}]);
        let mut bytes = Vec::new();
        write_archive(&mut bytes, vec![("packages.json".to_owned(), part)], 0).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("oprc-report/packages.json") && text.contains("KEY"));
        assert!(!text.contains("canary"));
    }
}
