//! `oprc rollback`: rolls a deployment back to an earlier revision.

use std::process::ExitCode;

use anyhow::Result;
use hyper::Method;
use oprc_rest::{Deployment, Rollback};

use super::deploy::{Wait, finish};
use crate::{
    client::escape,
    connection::ConnectionArgs,
    output::{OutputArgs, note, sanitize},
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  oprc rollback hello\n  oprc rollback hello --to 0G4XKQ2D3T9BV    # see: oprc status hello --history"
)]
pub(crate) struct Command {
    /// Deployment to roll back.
    deployment: String,
    /// Revision to restore [default: the previous one].
    #[arg(long, value_name = "REVISION")]
    to: Option<String>,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    show: OutputArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    let Command { deployment, to, wait, show, connection } = command;
    let client = connection.client().await?;
    let path = format!("/deployments/{}/rollback", escape(&deployment));
    let accepted: Deployment =
        client.send(Method::POST, &path, &Rollback { revision: to }, None).await?;
    note(&sanitize(&format!(
        "deployment {deployment} is being rolled back (revision {})",
        accepted.revision
    )));
    finish(&client, vec![accepted], &wait, &show).await
}
