//! `oprc check`: checks the package manager and its clusters, with hints for each problem.

mod checks;
mod kubernetes;
mod package_manager;
mod requirements;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Result;
use oprc_rest::Health;

use self::{
    checks::{Checks, Outcome, render},
    kubernetes::check_kubernetes,
    package_manager::{check_crm, check_package_manager},
    requirements::check_requirements,
};
use crate::{
    connection::ApiArgs,
    kube::KubeArgs,
    output::{Format, duration, note},
};

const RETRY_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  oprc check\n  oprc check --wait 2m -o json")]
pub(crate) struct Command {
    /// Retry until all checks pass or the timeout expires, such as 30s or 5m.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    wait: Option<Duration>,
    /// Check only the package manager and what it reports, without access to clusters.
    #[arg(long)]
    no_clusters: bool,
    #[command(flatten)]
    access: KubeArgs,
    #[command(flatten)]
    api: ApiArgs,
}

pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    command.api.show.reject_formats(&[Format::Name, Format::Wide])?;
    let started = Instant::now();
    let checks = loop {
        let checks = check_all(&command).await?;
        let left = command.wait.and_then(|wait| wait.checked_sub(started.elapsed()));
        match left {
            Some(left) if checks.failed() > 0 => tokio::time::sleep(RETRY_INTERVAL.min(left)).await,
            _ => break checks,
        }
    };
    command.api.show.print_result(&checks.all, || render(&checks.all))?;
    match checks.failed() {
        0 => Ok(ExitCode::SUCCESS),
        failed => {
            note(&format!("{failed} of {} checks failed", checks.all.len()));
            Ok(ExitCode::FAILURE)
        }
    }
}

async fn check_all(command: &Command) -> Result<Checks> {
    let mut checks = Checks { group: "package manager".to_owned(), all: Vec::new() };
    let client = command.api.client().await;
    let texts = ("connection configured", "connection not configured correctly");
    let hint = "check the context with `oprc context list`";
    let Some(client) = checks.require(texts, client, hint) else { return Ok(checks) };
    let Some(clusters) = check_package_manager(&mut checks, &client).await else {
        return Ok(checks);
    };
    let context = command.api.connection.resolve()?;
    if clusters.is_empty() {
        let hint = "configure a cluster in PM (OPRC_PM_CRM_CLUSTERS)";
        "clusters".clone_into(&mut checks.group);
        checks.push(Outcome::Error, "no clusters configured", "", hint);
    }
    for cluster in &clusters {
        checks.group = format!("cluster {}", cluster.name);
        check_crm(&mut checks, cluster);
        if cluster.health != Health::Unreachable {
            check_requirements(&mut checks, &client, cluster).await;
        }
        if !command.no_clusters {
            check_kubernetes(&mut checks, cluster, &command.access, &context).await;
        }
    }
    Ok(checks)
}
