//! `oprc orphan`: classes in clusters that belong to no deployment of the package manager.

use anyhow::{Result, bail};
use clap::Subcommand;
use hyper::Method;
use oprc_rest::{Adoption, ClassRuntime};

use crate::{
    client::escape,
    connection::{ApiArgs, ConnectionArgs},
    error::CliError,
    output::note,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List orphans.
    #[command(visible_alias = "ls", after_help = "Example:\n  oprc orphan list")]
    List {
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Add orphans to the deployments named in their ids; missing deployments are created, and the
    /// classes keep running.
    #[command(
        after_help = "Examples:\n  oprc orphan adopt east hello.Hello..east\n  oprc orphan adopt --all"
    )]
    Adopt {
        /// Cluster of the orphan.
        #[arg(required_unless_present = "all", requires = "id")]
        cluster: Option<String>,
        /// Id of the orphan.
        id: Option<String>,
        /// Adopt all orphans of all clusters.
        #[arg(long, conflicts_with_all = ["cluster", "id"])]
        all: bool,
        #[command(flatten)]
        connection: ConnectionArgs,
    },
    /// Delete an orphan from its cluster.
    #[command(after_help = "Example:\n  oprc orphan delete east hello.Hello..east")]
    Delete {
        /// Cluster of the orphan.
        cluster: String,
        /// Id of the orphan.
        id: String,
        #[command(flatten)]
        connection: ConnectionArgs,
    },
}

pub(crate) async fn run(command: Command) -> Result<()> {
    match command {
        Command::List { api } => {
            api.list::<ClassRuntime>(
                "/orphans",
                |it| format!("{}/{}", it.cluster, it.id),
                &[
                    ("CLUSTER", |it| it.cluster.clone()),
                    ("ID", |it| it.id.clone()),
                    ("STATUS", |it| it.status.clone()),
                    ("PACKAGE", |it| {
                        format!("{} {}", it.package_name, it.package_version).trim().to_owned()
                    }),
                    ("CLASS", |it| it.unit.class.clone()),
                ],
                &[],
            )
            .await?;
        }
        Command::Adopt { cluster, id, all: _, connection } => {
            let client = connection.client().await?;
            let mut orphans: Vec<ClassRuntime> = client.list("/orphans").await?;
            if let (Some(cluster), Some(id)) = (&cluster, &id) {
                orphans.retain(|it| it.cluster == *cluster && it.id == *id);
                if orphans.is_empty() {
                    bail!(CliError::NotFound(format!(
                        "orphan {id:?} not found on cluster {cluster}; see `oprc orphan list`"
                    )));
                }
            }
            for ClassRuntime { cluster, id, deployment, .. } in orphans {
                let path = format!("/orphans/{}/{}/adopt", escape(&cluster), escape(&id));
                let body = Adoption { deployment: deployment.unwrap_or_default() };
                client.send_only(Method::POST, &path, &body).await?;
                note(&format!("{id} on {cluster} adopted into deployment {}", body.deployment));
            }
        }
        Command::Delete { cluster, id, connection } => {
            let path = format!("/orphans/{}/{}", escape(&cluster), escape(&id));
            connection.client().await?.delete(&path).await?;
            note(&format!("deleting {id} from {cluster}"));
        }
    }
    Ok(())
}
