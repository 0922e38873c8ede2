//! `oprc deploy`: publishes and deploys a package, and waits for the rollout.

use std::time::Duration;

use anyhow::Result;
use hyper::Method;
use oprc_models::OClassDeployment;
use oprc_rest::{Deployment, FunctionStatus, UnitStatus};

use crate::{
    client::{Client, escape},
    connection::ApiArgs,
    error::optional,
    output::{OutputArgs, duration, note, table},
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
    api: ApiArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Wait {
    /// Return as soon as the package manager has accepted the request.
    #[arg(long)]
    no_wait: bool,
    /// Maximum time to wait, such as 30s or 5m.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    timeout: Duration,
}

impl Wait {
    /// `None` with --no-wait.
    pub(crate) fn limit(&self) -> Option<Duration> {
        (!self.no_wait).then_some(self.timeout)
    }
}

pub(crate) async fn run(command: Deploy) -> Result<()> {
    let Deploy { target, dry_run, wait, api } = command;
    let client = api.client().await?;
    let resolved = target.resolve(&client).await?;
    if dry_run {
        return super::plan::show(&client, &resolved, &api.show).await;
    }
    target::publish(&client, resolved.packages).await?;
    let mut accepted = Vec::new();
    for deployment in &resolved.deployments {
        accepted.push(create_or_update(&client, deployment).await?);
    }
    finish(&client, accepted, &wait, &api.show).await
}

async fn create_or_update(client: &Client, desired: &OClassDeployment) -> Result<Deployment> {
    let key = &desired.key;
    let path = format!("/deployments/{}", escape(key));
    let (accepted, result) = match optional(client.get::<Deployment>(&path).await)? {
        Some(old) => {
            // If-Match: a concurrent change must not be overwritten.
            let revision = Some(old.revision.as_str());
            let new: Deployment = client.send(Method::PUT, &path, desired, revision).await?;
            let result = if new.revision == old.revision { "unchanged" } else { "updated" };
            (new, result)
        }
        None => (client.send(Method::POST, "/deployments", desired, None).await?, "created"),
    };
    note(&format!("deployment {key} {result} (revision {})", accepted.revision));
    for warning in &accepted.plan.warnings {
        note(&format!("warning: {warning}"));
    }
    Ok(accepted)
}

/// Waits for the rollouts and prints the deployments or the URLs of their functions.
pub(super) async fn finish(
    client: &Client,
    accepted: Vec<Deployment>,
    wait: &Wait,
    show: &OutputArgs,
) -> Result<()> {
    let mut shown = Vec::new();
    for mut deployment in accepted {
        if let Some(limit) = wait.limit() {
            let (key, revision) = (&deployment.deployment.key, &deployment.revision);
            rollout::wait(client, key, Goal::Running { revision }, Some(limit), None).await?;
            deployment = client.get(&format!("/deployments/{}", escape(key))).await?;
        }
        shown.push(deployment);
    }
    let keys: Vec<_> = shown.iter().map(|it| it.deployment.key.as_str()).collect();
    show.one(&shown, &keys, |_| match wait.limit() {
        Some(_) => urls(&shown, !show.no_headers),
        None => String::new(),
    })
}

fn urls(deployments: &[Deployment], headers: bool) -> String {
    let units = deployments.iter().flat_map(|it| &it.status.units);
    let functions = units.flat_map(|unit| unit.functions.iter().map(move |it| (unit, it)));
    let functions: Vec<(&UnitStatus, &FunctionStatus)> = functions.collect();
    table(
        &functions,
        &[
            ("CLUSTER", |(unit, _)| unit.cluster.clone()),
            ("CLASS", |(unit, _)| unit.class.clone()),
            ("FUNCTION", |(_, function)| function.key.clone()),
            ("URL", |(_, function)| function.invocation_url.clone().unwrap_or_default()),
        ],
        headers,
    )
}
