//! `oprc logs`: what functions print, read from their clusters.

use std::{io, pin::Pin, process::ExitCode, time::Duration};

use anyhow::Result;
use futures::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, Stream, StreamExt as _, stream,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::LogParams};
use oprc_rest::{DeploymentStatus, UnitStatus};

use crate::{
    client::escape,
    contexts::Context,
    failure::{Failure, is_away},
    kube::{Access, connect, is_of_function, pods_of, within},
    output::{age, clean, print, say},
    remote::Remote,
};

/// More pods than this aren't read at once.
const MOST: usize = 50;
/// A line that is longer is several.
const LONGEST: u64 = 1 << 20;

/// The command.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  oprc logs hello\n  oprc logs hello greet --follow --tail 10")]
pub(crate) struct Command {
    /// The deployment.
    deployment: String,
    /// The function; all of them, where left out.
    function: Option<String>,
    /// Only this class.
    #[arg(long)]
    class: Option<String>,
    /// Only this cluster.
    #[arg(long)]
    cluster: Option<String>,
    /// Go on as more is printed.
    #[arg(long, short)]
    follow: bool,
    /// How many of the last lines of each pod; -1 is all.
    #[arg(long, default_value_t = 100, allow_negative_numbers = true)]
    tail: i64,
    /// Only what is younger than this.
    #[arg(long, value_name = "TIME", value_parser = age::parse)]
    since: Option<Duration>,
    /// What was printed before a pod's last restart.
    #[arg(long)]
    previous: bool,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    remote: Remote,
}

type Lines = Pin<Box<dyn Stream<Item = Result<String, String>>>>;

/// A pod with a log to read, and what it is called.
type Found = (String, Api<Pod>, String);

/// Does it.
pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    let path = format!("/deployments/{}/status", escape(&command.deployment));
    let status: DeploymentStatus = command.remote.client().await?.get(&path).await?;
    let context = command.remote.settle()?;
    let (mut found, mut away) = (Vec::new(), Vec::new());
    for unit in &status.units {
        let cluster = command.cluster.as_ref().is_none_or(|it| *it == unit.cluster);
        if !cluster || command.class.as_ref().is_some_and(|it| *it != unit.class) {
            continue;
        }
        // One cluster that is away doesn't hide the others.
        match of_unit(&command, &context, unit).await {
            Ok(pods) => found.extend(pods),
            Err(error) => away.push((unit.cluster.clone(), error)),
        }
    }
    if found.is_empty() {
        let none = || Failure::Missing("no pod runs that would have a log".to_owned()).into();
        return Err(away.into_iter().next().map_or_else(none, |(_, error)| error));
    }
    for (cluster, error) in &away {
        say(&clean(&format!("cluster {cluster}: {error:#}")));
    }
    let mut broken = away.len();
    if found.len() > MOST {
        say(&format!("{} pods; the logs of the first {MOST} are read", found.len()));
        found.truncate(MOST);
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
        match within(pods.log_stream(&name, &options)).await {
            Ok(log) => {
                let mark = if many { format!("{title}  ") } else { String::new() };
                streams.push(Box::pin(lines(log).map(move |line| match line {
                    Ok(line) => Ok(format!("{mark}{}\n", clean(&line))),
                    Err(error) => Err(format!("{title}: its log broke off: {error}")),
                })));
            }
            // One pod that is only starting doesn't hide the others, and nothing of it is missing.
            Err(error) => {
                broken += usize::from(is_away(&error));
                say(&clean(&format!("{title}: {error:#}")));
            }
        }
    }
    if streams.is_empty() {
        return Err(Failure::Failed("no log could be read".to_owned()).into());
    }
    let mut all: Lines = if command.follow {
        Box::pin(stream::select_all(streams))
    } else {
        Box::pin(stream::iter(streams).flatten())
    };
    while let Some(line) = all.next().await {
        match line {
            Ok(line) => print(&line)?,
            Err(told) => {
                broken += 1;
                say(&clean(&told));
            }
        }
    }
    if broken > 0 {
        return Err(Failure::Partial("not all logs could be read to their end".to_owned()).into());
    }
    Ok(ExitCode::SUCCESS)
}

/// The pods of a unit that are asked for.
async fn of_unit(command: &Command, context: &Context, unit: &UnitStatus) -> Result<Vec<Found>> {
    let client = connect(&command.access, context, &unit.cluster).await?;
    let mut pods = pods_of(&client, unit).await?;
    pods.retain(|pod| {
        command.function.as_ref().is_none_or(|key| is_of_function(&pod.function, key))
    });
    let found = pods.into_iter().map(|pod| {
        let title = clean(&format!("{}/{}", unit.cluster, pod.name));
        (title, Api::namespaced(client.clone(), &pod.namespace), pod.name)
    });
    Ok(found.collect())
}

/// The lines of a log, whatever bytes are in them, and how it broke off where it did.
fn lines(log: impl AsyncBufRead + Unpin) -> impl Stream<Item = io::Result<String>> {
    stream::try_unfold(log, |mut log| async move {
        let mut line = Vec::new();
        let read = (&mut log).take(LONGEST).read_until(b'\n', &mut line).await?;
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
    async fn lines_are_read_whatever_is_in_them() {
        let read = |bytes: &'static [u8]| lines(bytes).try_collect::<Vec<_>>();
        assert_eq!(read(b"").await.unwrap(), [""; 0]);
        let told = read(b"one\r\n\xff two\n\nlast").await.unwrap();
        assert_eq!(told, ["one", "\u{fffd} two", "", "last"]);
    }

    #[tokio::test]
    async fn a_log_that_breaks_off_is_no_end() {
        let broken = io::Error::from(io::ErrorKind::ConnectionReset);
        let parts = stream::iter([Ok(&b"one\ntw"[..]), Err(broken)]);
        let told: Vec<_> = lines(parts.into_async_read()).collect().await;
        assert!(matches!(told.as_slice(), [Ok(one), Err(_)] if one == "one"), "{told:?}");
    }
}
