//! `oprc watch`: prints status changes of a deployment.

use std::time::Duration;

use anyhow::Result;

use crate::{
    connection::ApiArgs,
    output::{Format, duration},
    rollout::{self, Goal},
};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  oprc watch hello\n  oprc watch hello -o json | jq .condition")]
pub(crate) struct Command {
    /// Deployment to watch.
    pub(super) deployment: String,
    /// Stop when the deployment is running, like `deploy`.
    #[arg(long)]
    pub(super) until_running: bool,
    /// Stop after this duration, such as 30s or 5m.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    pub(super) limit: Option<Duration>,
    #[command(flatten)]
    pub(super) api: ApiArgs,
}

pub(crate) async fn run(command: Command) -> Result<()> {
    let Command { deployment, until_running, limit, api } = command;
    let goal = if until_running { Goal::Running { revision: "" } } else { Goal::Unbounded };
    api.show.reject_formats(&[Format::Name, Format::Wide])?;
    let client = api.client().await?;
    // Without a goal the changes are the result; otherwise they are progress.
    let show = Some(api.show).filter(|it| !until_running || it.is_document());
    rollout::wait(&client, &deployment, goal, limit, show).await
}
