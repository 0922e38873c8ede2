//! `oprc orphan`: classes in clusters that belong to no deployment of the package manager.

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use hyper::Method;
use oprc_rest::{Adoption, ClassRuntime};

use crate::{
    client::escape,
    connection::ConnectionArgs,
    error::CliError,
    output::{OutputArgs, Table, note, sanitize},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List orphans.
    #[command(visible_alias = "ls", after_help = "Example:\n  oprc orphan list")]
    List {
        #[command(flatten)]
        show: OutputArgs,
        #[command(flatten)]
        connection: ConnectionArgs,
    },
    /// Adopt orphans into the deployments that their ids name; missing deployments are created, and
    /// the classes keep running.
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

pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::List { show, connection } => {
            let all: Vec<ClassRuntime> = connection.client().await?.list("/orphans").await?;
            show.list(&all, |it| format!("{}/{}", it.cluster, it.id), |_| table(&all))?;
        }
        Command::Adopt { cluster, id, all: _, connection } => {
            let client = connection.client().await?;
            let mut orphans: Vec<ClassRuntime> = client.list("/orphans").await?;
            if let (Some(cluster), Some(id)) = (&cluster, &id) {
                orphans.retain(|it| it.cluster == *cluster && it.id == *id);
                if orphans.is_empty() {
                    return Err(CliError::NotFound(format!(
                        "orphan {id:?} not found on cluster {cluster}; see `oprc orphan list`"
                    ))
                    .into());
                }
            }
            for ClassRuntime { cluster, id, deployment, .. } in orphans {
                let path = format!("/orphans/{}/{}/adopt", escape(&cluster), escape(&id));
                let body = Adoption { deployment: deployment.unwrap_or_default() };
                client.send_ignoring_body(Method::POST, &path, Some(&body)).await?;
                let deployment = &body.deployment;
                note(&sanitize(&format!("{id} on {cluster} adopted into deployment {deployment}")));
            }
        }
        Command::Delete { cluster, id, connection } => {
            let path = format!("/orphans/{}/{}", escape(&cluster), escape(&id));
            connection.client().await?.delete(&path).await?;
            note(&format!("deleting {id} from {cluster}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn table(all: &[ClassRuntime]) -> Table {
    let mut table = Table::new(&["CLUSTER", "ID", "STATUS", "PACKAGE", "CLASS"]);
    for it in all {
        let package = format!("{} {}", it.package_name, it.package_version);
        let package = package.trim().to_owned();
        let (cluster, id) = (it.cluster.clone(), it.id.clone());
        table.row_colored(vec![cluster, id, it.status.clone(), package, it.unit.class.clone()], 2);
    }
    table
}
