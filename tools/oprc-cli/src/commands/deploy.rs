//! `oprc deploy`: publishes and deploys a package, and waits for the rollout.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use hyper::Method;
use oprc_models::OClassDeployment;
use oprc_rest::{Deployment, DeploymentStatus};

use crate::{
    client::{Client, escape},
    connection::ConnectionArgs,
    error::is_not_found,
    output::{Format, OutputArgs, Table, duration, note, print, sanitize},
    rollout::{self, Goal},
    target::{self, TargetArgs},
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  oprc deploy examples/packages/hello.yaml\n  oprc deploy hello --cluster east --cluster west\n  oprc deploy hello@^0.1 --dry-run"
)]
pub(crate) struct Deploy {
    #[command(flatten)]
    target: TargetArgs,
    /// Show the plan and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    pub(crate) wait: Wait,
    #[command(flatten)]
    show: OutputArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Wait {
    /// Return as soon as the package manager has accepted the request.
    #[arg(long)]
    no_wait: bool,
    /// Maximum time to wait.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration::parse)]
    timeout: Duration,
}

impl Wait {
    /// `None` with --no-wait.
    pub(crate) fn limit(&self) -> Option<Duration> {
        (!self.no_wait).then_some(self.timeout)
    }
}

pub(crate) async fn run(command: Deploy) -> Result<ExitCode> {
    let Deploy { target, dry_run, wait, show, connection } = command;
    let client = connection.client().await?;
    let resolved = target.resolve(&client).await?;
    if dry_run {
        super::plan::show(&client, &resolved, &show).await?;
        return Ok(ExitCode::SUCCESS);
    }
    target::publish(&client, resolved.packages).await?;
    let mut accepted = Vec::new();
    for deployment in &resolved.deployments {
        accepted.push(create_or_update(&client, deployment).await?);
    }
    finish(&client, accepted, &wait, &show).await
}

async fn create_or_update(client: &Client, desired: &OClassDeployment) -> Result<Deployment> {
    let path = format!("/deployments/{}", escape(&desired.key));
    let (accepted, result): (Deployment, _) = match client.get::<Deployment>(&path).await {
        Ok(old) => {
            // If-Match: a concurrent change must not be overwritten.
            let revision = Some(old.revision.as_str());
            let new: Deployment = client.send(Method::PUT, &path, desired, revision).await?;
            let result = if new.revision == old.revision { "unchanged" } else { "updated" };
            (new, result)
        }
        Err(error) if is_not_found(&error) => {
            let new = client.send(Method::POST, "/deployments", desired, None).await?;
            (new, "created")
        }
        Err(error) => return Err(error),
    };
    note(&sanitize(&format!(
        "deployment {} {result} (revision {})",
        desired.key, accepted.revision
    )));
    accepted
        .plan
        .warnings
        .iter()
        .for_each(|warning| note(&sanitize(&format!("warning: {warning}"))));
    Ok(accepted)
}

/// Waits for the rollouts and prints the deployments or the URLs of their functions.
pub(super) async fn finish(
    client: &Client,
    accepted: Vec<Deployment>,
    wait: &Wait,
    show: &OutputArgs,
) -> Result<ExitCode> {
    let mut shown = Vec::new();
    for deployment in accepted {
        let key = deployment.deployment.key.clone();
        let Some(limit) = wait.limit() else {
            shown.push(deployment);
            continue;
        };
        rollout::wait(client, &key, &deployment.revision, Goal::Running, Some(limit)).await?;
        shown.push(client.get(&format!("/deployments/{}", escape(&key))).await?);
    }
    match show.output {
        Format::Json | Format::Yaml => show.document(&shown)?,
        Format::Name => {
            let names = shown.iter().map(|it| sanitize(&it.deployment.key) + "\n");
            print(&names.collect::<String>())?;
        }
        Format::Table | Format::Wide => {
            if wait.limit().is_some() {
                let statuses = shown.iter().map(|it| &it.status);
                print(&urls(statuses).render(!show.no_headers))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn urls<'a>(statuses: impl Iterator<Item = &'a DeploymentStatus>) -> Table {
    let mut table = Table::new(&["CLUSTER", "CLASS", "FUNCTION", "URL"]);
    for unit in statuses.flat_map(|status| &status.units) {
        for function in &unit.functions {
            let url = function.invocation_url.clone().unwrap_or_default();
            table.row([unit.cluster.clone(), unit.class.clone(), function.key.clone(), url]);
        }
    }
    table
}
