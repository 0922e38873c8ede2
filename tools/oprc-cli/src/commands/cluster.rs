//! `oprc cluster`: clusters of the package manager.

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use oprc_rest::{Cluster, Health};

use crate::{
    client::escape,
    connection::ConnectionArgs,
    display::api_name,
    error::CliError,
    output::{OutputArgs, Table, duration, note},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List clusters.
    #[command(visible_alias = "ls", after_help = "Example:\n  oprc cluster list -o wide")]
    List {
        #[command(flatten)]
        show: OutputArgs,
        #[command(flatten)]
        connection: ConnectionArgs,
    },
    /// Show the health of clusters; fails unless all are healthy.
    #[command(after_help = "Example:\n  oprc cluster health east")]
    Health {
        /// Cluster [default: all].
        cluster: Option<String>,
        #[command(flatten)]
        show: OutputArgs,
        #[command(flatten)]
        connection: ConnectionArgs,
    },
    /// Remove the records of a cluster that is no longer configured; its workloads are not deleted.
    #[command(after_help = "Example:\n  oprc cluster forget east")]
    Forget {
        /// Name of the cluster.
        cluster: String,
        #[command(flatten)]
        connection: ConnectionArgs,
    },
}

pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::List { show, connection } => {
            let all: Vec<Cluster> = connection.client().await?.list("/clusters").await?;
            show.list(&all, |it| it.name.clone(), |wide| table(&all, wide))?;
        }
        Command::Forget { cluster, connection } => {
            let path = format!("/clusters/{}", escape(&cluster));
            connection.client().await?.delete(&path).await?;
            note(&format!("cluster {cluster} removed"));
        }
        Command::Health { cluster, show, connection } => {
            let client = connection.client().await?;
            let all: Vec<Cluster> = match &cluster {
                Some(name) => vec![client.get(&format!("/clusters/{}", escape(name))).await?],
                None => client.list("/clusters").await?,
            };
            show.list(&all, |it| it.name.clone(), |_| health(&all))?;
            let unhealthy: Vec<_> = all.iter().filter(|it| it.health != Health::Healthy).collect();
            if let [first, ..] = unhealthy.as_slice() {
                let (name, health) = (&first.name, api_name(&first.health));
                return Err(CliError::Failed(format!(
                    "cluster {name} is {health}: {}\nhint: run `oprc check`",
                    first.message
                ))
                .into());
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn last_seen(cluster: &Cluster) -> String {
    cluster.last_seen.as_deref().map(duration::age).unwrap_or_default()
}

fn table(all: &[Cluster], wide: bool) -> Table {
    let mut headers = vec!["CLUSTER", "HEALTH", "NODES", "UNITS", "DEFAULT", "LAST SEEN"];
    if wide {
        headers.extend(["PROFILE", "CAPABILITIES", "TEMPLATES", "URL"]);
    }
    let mut table = Table::new(&headers);
    for it in all {
        let nodes = it.nodes.map(|nodes| match it.ready_nodes {
            Some(ready) => format!("{ready}/{nodes}"),
            None => nodes.to_string(),
        });
        let mut row = vec![
            it.name.clone(),
            api_name(&it.health),
            nodes.unwrap_or_default(),
            it.units.to_string(),
            if it.default { "yes" } else { "no" }.to_owned(),
            last_seen(it),
        ];
        if wide {
            let capabilities = it
                .capabilities
                .iter()
                .filter(|(_, available)| **available)
                .map(|(name, _)| name.as_str());
            let capabilities = capabilities.collect::<Vec<_>>().join(",");
            row.extend([it.profile.clone(), capabilities, it.templates.join(","), it.url.clone()]);
        }
        table.row_colored(row, 1);
    }
    table
}

fn health(all: &[Cluster]) -> Table {
    let mut table = Table::new(&["CLUSTER", "HEALTH", "LAST SEEN", "MESSAGE"]);
    for it in all {
        table.row_colored(
            vec![it.name.clone(), api_name(&it.health), last_seen(it), it.message.clone()],
            1,
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_a_dash_for_unknown_node_counts() {
        let mut cluster = Cluster { name: "east".to_owned(), ..Cluster::default() };
        let rendered = |cluster: &Cluster| {
            let text = table(std::slice::from_ref(cluster), false).render(false);
            anstream::adapter::strip_str(&text).to_string()
        };
        assert_eq!(rendered(&cluster), "east   UNREACHABLE   -   0   no   -\n");
        (cluster.nodes, cluster.ready_nodes) = (Some(3), Some(2));
        assert!(rendered(&cluster).contains("2/3"));
    }
}
