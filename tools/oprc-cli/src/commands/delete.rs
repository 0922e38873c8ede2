//! `oprc delete`: takes deployments away.

use std::process::ExitCode;

use anyhow::Result;

use super::deploy::Wait;
use crate::{
    client::escape,
    failure::is_missing,
    follow::{Goal, follow},
    output::say,
    remote::Remote,
};

/// The command.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  oprc delete hello")]
pub(crate) struct Command {
    /// The deployments.
    #[arg(required = true, value_name = "DEPLOYMENT")]
    deployments: Vec<String>,
    /// What isn't there is no error.
    #[arg(long)]
    ignore_missing: bool,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    remote: Remote,
}

/// Does it.
pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    let client = command.remote.client().await?;
    let mut deleted = Vec::new();
    for key in &command.deployments {
        match client.delete(&format!("/deployments/{}", escape(key))).await {
            Ok(()) => deleted.push(key),
            Err(error) if command.ignore_missing && is_missing(&error) => {
                say(&format!("deployment {key} isn't there"));
            }
            Err(error) => return Err(error),
        }
    }
    // All of them go at the same time.
    for key in deleted {
        if let Some(limit) = command.wait.limit() {
            follow(&client, key, "", Goal::Gone, Some(limit)).await?;
            say(&format!("deployment {key} is gone"));
        } else {
            say(&format!("deployment {key} is being deleted"));
        }
    }
    Ok(ExitCode::SUCCESS)
}
