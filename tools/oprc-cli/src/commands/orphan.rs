//! `oprc orphan`: what clusters run for a package manager that this one doesn't know.

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use hyper::Method;
use oprc_rest::{Adoption, ClassRuntime};

use crate::{
    client::escape,
    output::{Show, Table, say},
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
    /// Take an orphan into a deployment; it goes on running as it is.
    #[command(after_help = "Example:\n  oprc orphan adopt east hello.Hello --deployment hello")]
    Adopt {
        /// The cluster.
        cluster: String,
        /// The orphan's id.
        id: String,
        /// The deployment that is to have it; made if there is none.
        #[arg(long)]
        deployment: String,
        #[command(flatten)]
        remote: Remote,
    },
    /// Delete an orphan from its cluster.
    #[command(after_help = "Example:\n  oprc orphan delete east hello.Hello")]
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
            let all: Vec<ClassRuntime> = remote.client()?.list("/orphans").await?;
            show.list(&all, |it| format!("{}/{}", it.cluster, it.id), |_| table(&all))?;
        }
        Command::Adopt { cluster, id, deployment, remote } => {
            let path = format!("/orphans/{}/{}/adopt", escape(&cluster), escape(&id));
            let body = Adoption { deployment: deployment.clone() };
            remote.client()?.tell(Method::POST, &path, Some(&body)).await?;
            say(&format!("{id} on {cluster} belongs to deployment {deployment} now"));
        }
        Command::Delete { cluster, id, remote } => {
            let path = format!("/orphans/{}/{}", escape(&cluster), escape(&id));
            remote.client()?.delete(&path).await?;
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
