//! `oprc deploy`: brings a package's deployments about, and waits until they run.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use hyper::Method;
use oprc_models::OClassDeployment;
use oprc_rest::{Deployment, DeploymentStatus};

use crate::{
    client::{Client, escape},
    failure::is_missing,
    follow::{Goal, follow},
    output::{Format, Show, Table, age, clean, print, say},
    remote::Remote,
    wanted::{self, Wanted},
};

/// The command.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  oprc deploy examples/packages/hello.yaml\n  oprc deploy hello --cluster east --cluster west\n  oprc deploy hello@^0.1 --dry-run"
)]
pub(crate) struct Deploy {
    #[command(flatten)]
    wanted: Wanted,
    /// Tell what would run where, and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    pub(crate) wait: Wait,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    remote: Remote,
}

/// How long to wait.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Wait {
    /// Return as soon as the package manager has it.
    #[arg(long)]
    no_wait: bool,
    /// How long to wait until it is so.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = age::parse)]
    timeout: Duration,
}

impl Wait {
    /// How long, where at all.
    pub(crate) fn limit(&self) -> Option<Duration> {
        (!self.no_wait).then_some(self.timeout)
    }
}

/// Does it.
pub(crate) async fn run(command: Deploy) -> Result<ExitCode> {
    let Deploy { wanted, dry_run, wait, show, remote } = command;
    let client = remote.client().await?;
    let settled = wanted.settle(&client).await?;
    if dry_run {
        super::plan::show(&client, &settled, &show).await?;
        return Ok(ExitCode::SUCCESS);
    }
    wanted::publish(&client, settled.packages).await?;
    let mut made = Vec::new();
    for deployment in &settled.deployments {
        made.push(put(&client, deployment).await?);
    }
    settle(&client, made, &wait, &show).await
}

/// Makes a deployment, or changes the one that is there.
async fn put(client: &Client, wanted: &OClassDeployment) -> Result<Deployment> {
    let path = format!("/deployments/{}", escape(&wanted.key));
    let (made, how) = match client.get::<Deployment>(&path).await {
        Ok(old) => {
            // Somebody else's change in between isn't undone.
            let revision = Some(old.revision.as_str());
            let new: Deployment = client.send(Method::PUT, &path, wanted, revision).await?;
            let how = if new.revision == old.revision { "unchanged" } else { "updated" };
            (new, how)
        }
        Err(error) if is_missing(&error) => {
            let new = client.send(Method::POST, "/deployments", wanted, None).await?;
            (new, "created")
        }
        Err(error) => return Err(error),
    };
    let made: Deployment = made;
    say(&clean(&format!("deployment {} {how} (revision {})", wanted.key, made.revision)));
    made.plan.warnings.iter().for_each(|warning| say(&clean(&format!("warning: {warning}"))));
    Ok(made)
}

/// Waits until deployments run, and prints where their functions are called.
pub(super) async fn settle(
    client: &Client,
    made: Vec<Deployment>,
    wait: &Wait,
    show: &Show,
) -> Result<ExitCode> {
    let mut shown = Vec::new();
    for deployment in made {
        let key = deployment.deployment.key.clone();
        let Some(limit) = wait.limit() else {
            shown.push(deployment);
            continue;
        };
        follow(client, &key, &deployment.revision, Goal::Running, Some(limit)).await?;
        shown.push(client.get(&format!("/deployments/{}", escape(&key))).await?);
    }
    match show.output {
        Format::Json | Format::Yaml => show.document(&shown)?,
        Format::Name => {
            let names = shown.iter().map(|it| clean(&it.deployment.key) + "\n");
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

/// Where functions are called.
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
