//! `oprc logs`: what functions print, read from their clusters.

use std::{pin::Pin, process::ExitCode, time::Duration};

use anyhow::Result;
use futures::{AsyncBufReadExt as _, Stream, StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::LogParams};
use oprc_rest::DeploymentStatus;

use crate::{
    client::escape,
    failure::Failure,
    kube::{Access, connect, is_of_function, pods_of, within},
    output::{age, clean, print, say},
    remote::Remote,
};

/// More pods than this aren't read at once.
const MOST: usize = 50;

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

type Lines = Pin<Box<dyn Stream<Item = String>>>;

/// Does it.
pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    let path = format!("/deployments/{}/status", escape(&command.deployment));
    let status: DeploymentStatus = command.remote.client().await?.get(&path).await?;
    let context = command.remote.settle()?;
    let mut found = Vec::new();
    for unit in &status.units {
        let cluster = command.cluster.as_ref().is_none_or(|it| *it == unit.cluster);
        if !cluster || command.class.as_ref().is_some_and(|it| *it != unit.class) {
            continue;
        }
        let client = connect(&command.access, &context, &unit.cluster).await?;
        for pod in pods_of(&client, unit).await? {
            let wanted = |key: &String| is_of_function(&pod.function, key);
            if command.function.as_ref().is_none_or(wanted) {
                let name = format!("{}/{}", unit.cluster, pod.name);
                found.push((
                    name,
                    Api::<Pod>::namespaced(client.clone(), &pod.namespace),
                    pod.name,
                ));
            }
        }
    }
    if found.is_empty() {
        return Err(Failure::Missing("no pod runs that would have a log".to_owned()).into());
    }
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
                let lines = log.lines().filter_map(|line| async { line.ok() });
                let mark = if many { format!("{title}  ") } else { String::new() };
                streams.push(Box::pin(lines.map(move |line| format!("{mark}{}\n", clean(&line)))));
            }
            // One pod that is only starting doesn't hide the others.
            Err(error) => say(&format!("{title}: {error:#}")),
        }
    }
    if streams.is_empty() {
        return Err(Failure::Failed("no log could be read".to_owned()).into());
    }
    if command.follow {
        let mut all = stream::select_all(streams);
        while let Some(line) = all.next().await {
            print(&line)?;
        }
    } else {
        for mut lines in streams {
            while let Some(line) = lines.next().await {
                print(&line)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
