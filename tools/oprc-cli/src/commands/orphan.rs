//! `oprc orphan`: what clusters run for a package manager that this one doesn't know.

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use hyper::Method;
use oprc_rest::{Adoption, ClassRuntime};

use crate::{
    client::escape,
    failure::Failure,
    output::{Show, Table, clean, say},
    remote::Remote,
};

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List orphans.
    #[command(visible_alias = "ls", after_help = "Example:\n  oprc orphan list")]
    List {
        #[command(flatten)]
        show: Show,
        #[command(flatten)]
        remote: Remote,
    },
    /// Take orphans back into the deployments that their ids name, which are made where there are
    /// none; they go on running as they are.
    #[command(
        after_help = "Examples:\n  oprc orphan adopt east hello.Hello..east\n  oprc orphan adopt --all"
    )]
    Adopt {
        /// The cluster.
        #[arg(required_unless_present = "all", requires = "id")]
        cluster: Option<String>,
        /// The orphan's id.
        id: Option<String>,
        /// All orphans of all clusters.
        #[arg(long, conflicts_with_all = ["cluster", "id"])]
        all: bool,
        #[command(flatten)]
        remote: Remote,
    },
    /// Delete an orphan from its cluster.
    #[command(after_help = "Example:\n  oprc orphan delete east hello.Hello..east")]
    Delete {
        /// The cluster.
        cluster: String,
        /// The orphan's id.
        id: String,
        #[command(flatten)]
        remote: Remote,
    },
}

/// Does what a command says.
pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::List { show, remote } => {
            let all: Vec<ClassRuntime> = remote.client().await?.list("/orphans").await?;
            show.list(&all, |it| format!("{}/{}", it.cluster, it.id), |_| table(&all))?;
        }
        Command::Adopt { cluster, id, all: _, remote } => {
            let client = remote.client().await?;
            let mut orphans: Vec<ClassRuntime> = client.list("/orphans").await?;
            if let (Some(cluster), Some(id)) = (&cluster, &id) {
                orphans.retain(|it| it.cluster == *cluster && it.id == *id);
                if orphans.is_empty() {
                    let told = format!("there is no orphan {id:?} on {cluster}");
                    return Err(Failure::Missing(told).into());
                }
            }
            for ClassRuntime { cluster, id, deployment, .. } in orphans {
                let path = format!("/orphans/{}/{}/adopt", escape(&cluster), escape(&id));
                let body = Adoption { deployment: deployment.unwrap_or_default() };
                client.tell(Method::POST, &path, Some(&body)).await?;
                let told =
                    format!("{id} on {cluster} belongs to deployment {} now", body.deployment);
                say(&clean(&told));
            }
        }
        Command::Delete { cluster, id, remote } => {
            let path = format!("/orphans/{}/{}", escape(&cluster), escape(&id));
            remote.client().await?.delete(&path).await?;
            say(&format!("{id} is being deleted from {cluster}"));
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
        table.painted(vec![cluster, id, it.status.clone(), package, it.unit.class.clone()], 2);
    }
    table
}
