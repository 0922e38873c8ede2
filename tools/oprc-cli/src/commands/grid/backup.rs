//! `oprc grid backup` and `restore`: all records of a data grid as lines of JSON.
//!
//! The first line describes the backup, and the last one has the number of records between them. A file
//! without it is incomplete and is never restored.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, BufWriter, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use hyper::{Method, header::ACCEPT};
use serde::{Deserialize, de::IgnoredAny};
use tempfile::NamedTempFile;
use tokio::time::timeout;

use crate::{
    connection::ConnectionArgs,
    error::CliError,
    grid::{GridArgs, GridRequest, Lines, NDJSON, Retry},
    output::note,
};

/// Of the header of a backup.
const FORMAT: u64 = 1;
/// Longest pause between two records.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    grid: GridArgs,
    /// File to write.
    file: PathBuf,
    /// Replace the file if it exists.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    grid: GridArgs,
    /// File that `oprc grid backup` wrote.
    file: PathBuf,
    /// Restore only objects of this member of the deployment; without it, a backup with objects of other
    /// members is refused.
    #[arg(long)]
    skip_others: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Deserialize)]
struct BackupHeader {
    backup: u64,
    class: String,
    #[serde(default)]
    collections: Vec<String>,
    revision: u64,
}

#[derive(Debug, Deserialize)]
struct BackupRecord {
    #[serde(rename = "key")]
    _key: IgnoredAny,
    #[serde(rename = "value")]
    _value: IgnoredAny,
}

#[derive(Debug, Deserialize)]
struct BackupEnd {
    end: bool,
    records: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RestoreResponse {
    /// An earlier request was completed, although this client may not have got the response.
    #[serde(default)]
    restored_before: bool,
    /// Records of objects of other members, which weren't restored.
    #[serde(default)]
    skipped: u64,
}

/// Checks that a backup is complete, line by line.
#[derive(Debug, Default)]
struct BackupCheck {
    header: Option<BackupHeader>,
    records: u64,
    ended: bool,
}

impl BackupCheck {
    fn add(&mut self, line: &[u8]) -> Result<(), String> {
        if self.ended {
            return Err("lines follow after its end".to_owned());
        }
        if self.header.is_none() {
            let header: BackupHeader = serde_json::from_slice(line)
                .map_err(|error| format!("its first line is no header of a backup: {error}"))?;
            if header.backup != FORMAT {
                let found = header.backup;
                return Err(format!("it has the format {found}, and this `oprc` knows {FORMAT}"));
            }
            self.header = Some(header);
            return Ok(());
        }
        if serde_json::from_slice::<BackupRecord>(line).is_ok() {
            self.records += 1;
            return Ok(());
        }
        let number = self.records + 2;
        let BackupEnd { end, records } = serde_json::from_slice(line)
            .map_err(|error| format!("line {number} is no record: {error}"))?;
        if !end || records != self.records {
            let found = self.records;
            return Err(format!("its end says that it has {records} records, but it has {found}"));
        }
        self.ended = true;
        Ok(())
    }

    fn finish(self) -> Result<(BackupHeader, u64), String> {
        let incomplete = || "it is incomplete: its last line is missing".to_owned();
        let header = self.header.filter(|_| self.ended).ok_or_else(incomplete)?;
        Ok((header, self.records))
    }
}

fn describe((header, records): &(BackupHeader, u64)) -> String {
    let BackupHeader { class, collections, revision, .. } = header;
    let collections = collections.join(", ");
    format!("{records} records of class {class} ({collections}) at revision {revision}")
}

pub(super) async fn backup(command: BackupArgs) -> Result<()> {
    let BackupArgs { grid, file, force, connection } = command;
    if !force && file.exists() {
        let message = format!("{} exists; name another file, or use --force", file.display());
        bail!(CliError::InvalidInput(message));
    }
    let grid = grid.open(&connection).await?;
    let request = GridRequest::new(Method::POST, "/backup".to_owned(), Retry::IfNotApplied);
    let mut lines = grid.stream(&request.header(ACCEPT, NDJSON)).await?;
    let folder = file.parent().filter(|it| !it.as_os_str().is_empty());
    let writing = || format!("writing {}", file.display());
    // With mode 0600, and deleted unless it is complete.
    let draft = NamedTempFile::new_in(folder.unwrap_or(Path::new("."))).with_context(writing)?;
    let about = write(&mut lines, draft.as_file()).await?;
    draft.as_file().sync_all().with_context(writing)?;
    let renamed = if force { draft.persist(&file) } else { draft.persist_noclobber(&file) };
    renamed.map_err(|error| error.error).with_context(writing)?;
    note(&format!("{}: {}", file.display(), describe(&about)));
    Ok(())
}

async fn write(lines: &mut Lines, file: &File) -> Result<(BackupHeader, u64)> {
    let invalid = |why: String| {
        CliError::Failed(format!("the data grid sent no valid backup: {why}; repeat the command"))
    };
    let mut writer = BufWriter::new(file);
    let mut check = BackupCheck::default();
    loop {
        let next = timeout(IDLE_TIMEOUT, lines.next()).await.map_err(|_| {
            let seconds = IDLE_TIMEOUT.as_secs();
            CliError::Unavailable(format!(
                "the data grid sent nothing for {seconds} s; repeat the command"
            ))
        });
        let Some(line) = next?? else { break };
        check.add(&line).map_err(invalid)?;
        writer
            .write_all(&line)
            .and_then(|()| writer.write_all(b"\n"))
            .context("writing the backup")?;
    }
    writer.flush().context("writing the backup")?;
    Ok(check.finish().map_err(invalid)?)
}

/// Checks a file before any of it is sent.
fn check_file(path: &Path) -> Result<(BackupHeader, u64)> {
    let reading = || format!("reading {}", path.display());
    let invalid = |why: String| {
        CliError::InvalidInput(format!("{}: {why}; restore another file", path.display()))
    };
    let file = File::open(path).map_err(|error| invalid(error.to_string()))?;
    let mut check = BackupCheck::default();
    for line in BufReader::new(file).split(b'\n') {
        check.add(&line.with_context(reading)?).map_err(invalid)?;
    }
    Ok(check.finish().map_err(invalid)?)
}

pub(super) async fn restore(command: RestoreArgs) -> Result<()> {
    let RestoreArgs { grid, file, skip_others, connection } = command;
    let about = check_file(&file)?;
    let grid = grid.open(&connection).await?;
    let path = if skip_others { "/restore?others=skip" } else { "/restore" };
    let RestoreResponse { restored_before, skipped } = grid.upload(path, &file).await?;
    let (name, about) = (grid.name(), describe(&about));
    let skipped = match skipped {
        0 => String::new(),
        skipped => format!(", without {skipped} records of objects of other members"),
    };
    note(&if restored_before {
        format!(
            "{name} was restored from this backup before, nothing was changed: {about}{skipped}"
        )
    } else {
        format!("restored into {name}: {about}{skipped}")
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(lines: &[&str]) -> Result<u64, String> {
        let mut check = BackupCheck::default();
        lines.iter().try_for_each(|line| check.add(line.as_bytes()))?;
        check.finish().map(|(_, records)| records)
    }

    #[test]
    fn only_complete_backups_are_accepted() {
        let header = r#"{"backup":1,"class":"Counter","collections":["a"],"revision":7}"#;
        let record = r#"{"key":"o/a/1","value":{"state":{}}}"#;
        let end = r#"{"end":true,"records":1}"#;
        assert_eq!(checked(&[header, record, end]), Ok(1));
        assert_eq!(checked(&[header, r#"{"end":true,"records":0}"#]), Ok(0));
        for (lines, expected) in [
            (&[][..], "incomplete"),
            (&[header, record], "incomplete"),
            (&[record, end], "no header"),
            (&[header, end], "but it has 0"),
            (&[header, record, record, end], "but it has 2"),
            (&[header, "{\"key\":\"o/a", end], "line 2 is no record"),
            (&[header, record, end, record], "after its end"),
            (&[r#"{"backup":2,"class":"Counter","revision":7}"#], "the format 2"),
        ] {
            let error = checked(lines).unwrap_err();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
