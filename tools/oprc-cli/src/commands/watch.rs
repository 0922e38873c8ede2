//! `oprc watch`: tells each change of a deployment as it comes.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;

use crate::{
    failure::Failure,
    follow::{Goal, tell},
    output::{Format, Show, age},
    remote::Remote,
};

/// The command.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  oprc watch hello\n  oprc watch hello -o json | jq .condition")]
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
    show: Show,
    #[command(flatten)]
    remote: Remote,
}

impl Command {
    /// One that tells each change of a deployment, without an end.
    pub(super) fn of(deployment: String, show: Show, remote: Remote) -> Self {
        Self { deployment, until_running: false, limit: None, show, remote }
    }
}

/// Does it.
pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    let goal = if command.until_running { Goal::Running } else { Goal::Never };
    command.show.refuse(&[Format::Name, Format::Wide])?;
    let client = command.remote.client().await?;
    // What happens is the result where nothing else is waited for, and said about one elsewhere.
    let show = Some(command.show).filter(|it| goal == Goal::Never || it.is_document());
    let ended = tell(&client, &command.deployment, "", goal, command.limit, show).await;
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
