//! `oprc rollback`: rolls a deployment back to an earlier revision.

use anyhow::Result;
use hyper::Method;
use oprc_rest::{Deployment, Rollback};

use super::deploy::{Wait, finish};
use crate::{client::escape, connection::ApiArgs, output::note};

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
    api: ApiArgs,
}

pub(crate) async fn run(command: Command) -> Result<()> {
    let Command { deployment, to, wait, api } = command;
    let client = api.client().await?;
    let path = format!("/deployments/{}/rollback", escape(&deployment));
    let body = Rollback { revision: to };
    let accepted: Deployment = client.send(Method::POST, &path, &body, None).await?;
    let revision = &accepted.revision;
    note(&format!("deployment {deployment} is being rolled back (revision {revision})"));
    finish(&client, vec![accepted], &wait, &api.show).await
}
