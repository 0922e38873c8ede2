//! `oprc logs`: logs of functions, read from their clusters.

use std::{io, pin::Pin, time::Duration};

use anyhow::{Result, bail, ensure};
use futures::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, Stream, StreamExt as _, stream,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::LogParams};
use oprc_rest::{DeploymentStatus, UnitStatus};
use oprc_unit::names;

use crate::{
    client::escape,
    connection::ConnectionArgs,
    contexts::Context,
    error::{CliError, is_unavailable},
    kube::{KubeArgs, connect, list_pods, with_timeout},
    output::{duration, note, print, sanitize},
};

const MAX_PODS: usize = 50;
/// Longer lines are split.
const MAX_LINE_BYTES: u64 = 1 << 20;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  oprc logs hello\n  oprc logs hello greet --follow --tail 10")]
pub(crate) struct Command {
    /// Deployment of the functions.
    deployment: String,
    /// Function [default: all].
    function: Option<String>,
    /// Show only this class.
    #[arg(long)]
    class: Option<String>,
    /// Show only this cluster.
    #[arg(long)]
    cluster: Option<String>,
    /// Stream new log lines.
    #[arg(long, short)]
    follow: bool,
    /// Number of recent lines per pod; -1 for all.
    #[arg(long, default_value_t = 100, allow_negative_numbers = true)]
    tail: i64,
    /// Show only lines newer than this duration, such as 30s or 5m.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    since: Option<Duration>,
    /// Show the logs of the previous container instance.
    #[arg(long)]
    previous: bool,
    #[command(flatten)]
    access: KubeArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

type Lines = Pin<Box<dyn Stream<Item = Result<String, String>>>>;

/// Title, API and name of a pod.
type PodLog = (String, Api<Pod>, String);

pub(crate) async fn run(command: Command) -> Result<()> {
    let path = format!("/deployments/{}/status", escape(&command.deployment));
    let status: DeploymentStatus = command.connection.client().await?.get(&path).await?;
    let context = command.connection.resolve()?;
    let (mut found, mut failures) = (Vec::new(), Vec::new());
    for unit in &status.units {
        let cluster = command.cluster.as_ref().is_none_or(|it| *it == unit.cluster);
        if !cluster || command.class.as_ref().is_some_and(|it| *it != unit.class) {
            continue;
        }
        // An unreachable cluster must not hide the others.
        match pods_of_unit(&command, &context, unit).await {
            Ok(pods) => found.extend(pods),
            Err(error) => failures.push((unit.cluster.clone(), error)),
        }
    }
    if found.is_empty() {
        if let Some((_, error)) = failures.into_iter().next() {
            return Err(error);
        }
        let key = command.deployment;
        bail!(CliError::NotFound(format!(
            "deployment {key} has no matching pods; see `oprc status {key} --pods`"
        )));
    }
    for (cluster, error) in &failures {
        note(&format!("cluster {cluster}: {error:#}"));
    }
    let mut broken = failures.len();
    if found.len() > MAX_PODS {
        note(&format!("{} pods found, reading the logs of the first {MAX_PODS}", found.len()));
        found.truncate(MAX_PODS);
    }
    let options = LogParams {
        follow: command.follow,
        tail_lines: (command.tail >= 0).then_some(command.tail),
        since_seconds: command.since.and_then(|it| i64::try_from(it.as_secs()).ok()),
        previous: command.previous,
        ..LogParams::default()
    };
    let many = found.len() > 1;
    let mut streams: Vec<Lines> = Vec::new();
    for (title, pods, name) in found {
        match with_timeout(pods.log_stream(&name, &options)).await {
            Ok(log) => {
                let prefix = if many { format!("{title}  ") } else { String::new() };
                streams.push(Box::pin(lines(log).map(move |line| match line {
                    Ok(line) => Ok(format!("{prefix}{}\n", sanitize(&line))),
                    Err(error) => Err(format!("{title}: the log stream was interrupted: {error}")),
                })));
            }
            // A pod that is still starting has no log yet, which is no failure.
            Err(error) => {
                broken += usize::from(is_unavailable(&error));
                note(&format!("{title}: {error:#}"));
            }
        }
    }
    ensure!(!streams.is_empty(), CliError::Failed("no logs could be read".to_owned()));
    let mut all: Lines = if command.follow {
        Box::pin(stream::select_all(streams))
    } else {
        Box::pin(stream::iter(streams).flatten())
    };
    while let Some(line) = all.next().await {
        match line {
            Ok(line) => print(&line)?,
            Err(message) => {
                broken += 1;
                note(&message);
            }
        }
    }
    let message = "some logs could not be read completely; see the messages above";
    ensure!(broken == 0, CliError::Partial(message.to_owned()));
    Ok(())
}

async fn pods_of_unit(
    command: &Command,
    context: &Context,
    unit: &UnitStatus,
) -> Result<Vec<PodLog>> {
    let client = connect(&command.access, context, &unit.cluster).await?;
    let label = command.function.as_deref().map(names::label);
    let pods = list_pods(&client, unit).await?.into_iter();
    let pods = pods.filter(|pod| label.as_ref().is_none_or(|label| pod.function == *label));
    let found = pods.map(|pod| {
        let title = sanitize(&format!("{}/{}", unit.cluster, pod.name));
        (title, Api::namespaced(client.clone(), &pod.namespace), pod.name)
    });
    Ok(found.collect())
}

/// Splits a log into lines; invalid UTF-8 is replaced.
fn lines(log: impl AsyncBufRead + Unpin) -> impl Stream<Item = io::Result<String>> {
    stream::try_unfold(log, |mut log| async move {
        let mut line = Vec::new();
        let read = (&mut log).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await?;
        let line = String::from_utf8_lossy(&line);
        let line = line.strip_suffix('\n').unwrap_or(&line);
        let line = line.strip_suffix('\r').unwrap_or(line).to_owned();
        Ok((read > 0).then_some((line, log)))
    })
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt as _;

    use super::*;

    #[tokio::test]
    async fn reads_lines_with_invalid_utf8() {
        let read = |bytes: &'static [u8]| lines(bytes).try_collect::<Vec<_>>();
        assert_eq!(read(b"").await.unwrap(), [""; 0]);
        let read_lines = read(b"one\r\n\xff two\n\nlast").await.unwrap();
        assert_eq!(read_lines, ["one", "\u{fffd} two", "", "last"]);
    }

    #[tokio::test]
    async fn reports_a_broken_stream() {
        let broken = io::Error::from(io::ErrorKind::ConnectionReset);
        let parts = stream::iter([Ok(&b"one\ntw"[..]), Err(broken)]);
        let results: Vec<_> = lines(parts.into_async_read()).collect().await;
        assert!(matches!(results.as_slice(), [Ok(one), Err(_)] if one == "one"), "{results:?}");
    }
}
