//! `oprc delete`: deletes deployments.

use anyhow::Result;

use super::deploy::Wait;
use crate::{
    client::escape,
    connection::ConnectionArgs,
    error::is_not_found,
    output::note,
    rollout::{self, Goal},
};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  oprc delete hello")]
pub(crate) struct Command {
    /// Deployments to delete.
    #[arg(required = true, value_name = "DEPLOYMENT")]
    deployments: Vec<String>,
    /// Succeed if a deployment doesn't exist.
    #[arg(long, alias = "ignore-missing")]
    ignore_not_found: bool,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(crate) async fn run(command: Command) -> Result<()> {
    let client = command.connection.client().await?;
    let mut deleted = Vec::new();
    for key in &command.deployments {
        match client.delete(&format!("/deployments/{}", escape(key))).await {
            Ok(()) => deleted.push(key),
            Err(error) if command.ignore_not_found && is_not_found(&error) => {
                note(&format!("deployment {key} not found"));
            }
            Err(error) => return Err(error),
        }
    }
    // All deletions run at the same time.
    for key in deleted {
        if let Some(limit) = command.wait.limit() {
            rollout::wait(&client, key, Goal::Deleted, Some(limit), None).await?;
            note(&format!("deployment {key} deleted"));
        } else {
            note(&format!("deployment {key} is being deleted"));
        }
    }
    Ok(())
}
