//! `oprc report`: a bundle for a report of a bug, with secrets removed.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use time::{OffsetDateTime, macros::format_description};

use crate::{
    client::{Client, escape},
    output::{print, redact, say},
    remote::Remote,
};

/// The lists that are taken along.
const LISTS: [&str; 6] =
    ["packages", "deployments", "class-runtimes", "orphans", "clusters", "functions"];
/// As many histories as are taken along.
const MOST: usize = 100;

/// The command.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Values of environments, command lines and whatever is called like a secret are removed;\nlook through it all the same before you give it to others.\n\nExample:\n  oprc report --file report.tar"
)]
pub(crate) struct Command {
    /// The archive to write, oprc-report-TIME.tar where left out.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    remote: Remote,
}

/// Does it.
pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    let now = OffsetDateTime::now_utc();
    let file = match command.file {
        Some(file) => file,
        None => {
            let stamp =
                now.format(format_description!("[year][month][day]-[hour][minute][second]"))?;
            PathBuf::from(format!("oprc-report-{stamp}.tar"))
        }
    };
    let context = command.remote.settle()?;
    let client = command.remote.client().await?;
    let mut parts = gather(&client).await;
    let about = json!({
        "oprc": env!("CARGO_PKG_VERSION"),
        "server": context.server,
        "clusters": context.clusters.keys().collect::<Vec<_>>(),
        "at": now.unix_timestamp(),
    });
    parts.insert(0, ("about.json".to_owned(), about));
    let made = create(&file).with_context(|| format!("making {}", file.display()))?;
    bundle(made, parts, now.unix_timestamp())
        .with_context(|| format!("writing {}", file.display()))?;
    say(
        "Secrets were removed as far as they can be told; look through it before you give it away.",
    );
    print(&format!("{}\n", file.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Makes the archive, where there is none yet. Only its owner may read it: what is in it is only
/// meant for those whom it is given to.
fn create(file: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)
}

/// Everything that can be had; what can't says why.
async fn gather(client: &Client) -> Vec<(String, Value)> {
    let mut parts = Vec::new();
    let mut keys = Vec::new();
    for list in LISTS {
        let items = client.list::<Value>(&format!("/{list}")).await;
        if let ("deployments", Ok(items)) = (list, &items) {
            let key = |item: &Value| item.pointer("/deployment/key")?.as_str().map(str::to_owned);
            keys = items.iter().filter_map(key).take(MOST).collect();
        }
        parts.push((format!("{list}.json"), told(items.map(Value::Array))));
    }
    for key in keys {
        let history = client.list::<Value>(&format!("/deployments/{}/history", escape(&key))).await;
        parts.push((format!("history/{}.json", escape(&key)), told(history.map(Value::Array))));
    }
    for (name, path) in [("ready", "/health/ready"), ("metrics", "/metrics")] {
        let text = client.text(path).await.map(Value::String);
        parts.push((format!("{name}.json"), told(text)));
    }
    parts
}

fn told(part: Result<Value>) -> Value {
    part.unwrap_or_else(|error| json!({"unavailable": format!("{error:#}")}))
}

/// Writes the archive. Nothing gets into it but through here, with secrets removed.
fn bundle(to: impl std::io::Write, parts: Vec<(String, Value)>, at: i64) -> Result<()> {
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
    fn only_its_owner_reads_the_bundle() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.tar");
        let mode = create(&path).unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(create(&path).is_err(), "what is there stays as it is");
    }

    #[test]
    fn no_secret_gets_into_the_bundle() {
        let part = json!([{"package": {"functions": [{"config": {"env": {"KEY": "canary-1"}}}]},
                           "token": "canary-2"}]);
        let mut bytes = Vec::new();
        bundle(&mut bytes, vec![("packages.json".to_owned(), part)], 0).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("oprc-report/packages.json") && text.contains("KEY"));
        assert!(!text.contains("canary"));
    }
}
