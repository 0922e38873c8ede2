//! `oprc rollback`: back to what was wanted before.

use std::process::ExitCode;

use anyhow::Result;
use hyper::Method;
use oprc_rest::{Deployment, Rollback};

use super::deploy::{Wait, settle};
use crate::{
    client::escape,
    output::{Show, clean, say},
    remote::Remote,
};

/// The command.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  oprc rollback hello\n  oprc rollback hello --to 0G4XKQ2D3T9BV    # see: oprc status hello --history"
)]
pub(crate) struct Command {
    /// The deployment.
    deployment: String,
    /// The revision to go back to, the one before the latest where left out.
    #[arg(long, value_name = "REVISION")]
    to: Option<String>,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    remote: Remote,
}

/// Does it.
pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    let Command { deployment, to, wait, show, remote } = command;
    let client = remote.client().await?;
    let path = format!("/deployments/{}/rollback", escape(&deployment));
    let made: Deployment =
        client.send(Method::POST, &path, &Rollback { revision: to }, None).await?;
    say(&clean(&format!("deployment {deployment} goes back (revision {})", made.revision)));
    settle(&client, vec![made], &wait, &show).await
}
