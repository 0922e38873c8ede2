//! `oprc watch`: prints status changes of a deployment.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;

use crate::{
    connection::ConnectionArgs,
    output::{Format, OutputArgs, duration},
    rollout::{self, Goal},
};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  oprc watch hello\n  oprc watch hello -o json | jq .condition")]
pub(crate) struct Command {
    /// Deployment to watch.
    deployment: String,
    /// Stop when the deployment is running, like `deploy`.
    #[arg(long)]
    until_running: bool,
    /// Stop after this time.
    #[arg(long = "for", value_name = "TIME", value_parser = duration::parse)]
    limit: Option<Duration>,
    #[command(flatten)]
    show: OutputArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

impl Command {
    pub(super) fn unbounded(
        deployment: String,
        show: OutputArgs,
        connection: ConnectionArgs,
    ) -> Self {
        Self { deployment, until_running: false, limit: None, show, connection }
    }
}

pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    let goal = if command.until_running { Goal::Running } else { Goal::Unbounded };
    command.show.reject_formats(&[Format::Name, Format::Wide])?;
    let client = command.connection.client().await?;
    // Without a goal the changes are the result; otherwise they are progress.
    let show = Some(command.show).filter(|it| goal == Goal::Unbounded || it.is_document());
    rollout::watch(&client, &command.deployment, "", goal, command.limit, show).await?;
    Ok(ExitCode::SUCCESS)
}
