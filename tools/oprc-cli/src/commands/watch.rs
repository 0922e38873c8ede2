//! `oprc watch`: tells each change of a deployment as it comes.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;

use crate::{
    failure::Failure,
    follow::{Goal, follow},
    output::age,
    remote::Remote,
};

/// The command.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  oprc watch hello")]
pub(crate) struct Command {
    /// The deployment.
    deployment: String,
    /// End when it runs, as `deploy` does.
    #[arg(long)]
    until_running: bool,
    /// End after this time.
    #[arg(long = "for", value_name = "TIME", value_parser = age::parse)]
    limit: Option<Duration>,
    #[command(flatten)]
    remote: Remote,
}

/// Does it.
pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    let goal = if command.until_running { Goal::Running } else { Goal::Never };
    let client = command.remote.client().await?;
    let ended = follow(&client, &command.deployment, "", goal, command.limit).await;
    match ended {
        // That the time is over is what was asked for.
        Err(error)
            if goal == Goal::Never
                && command.limit.is_some()
                && matches!(error.downcast_ref(), Some(Failure::Away(why)) if why.contains("not within")) =>
        {
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Err(error),
        Ok(_) => Ok(ExitCode::SUCCESS),
    }
}
