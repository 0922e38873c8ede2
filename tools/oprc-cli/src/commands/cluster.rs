//! `oprc cluster`: the clusters that the package manager knows.

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use oprc_rest::{Cluster, Health};

use crate::{
    client::escape,
    failure::Failure,
    output::{Show, Table, age, say},
    remote::Remote,
    words::word,
};

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List clusters.
    #[command(visible_alias = "ls", after_help = "Example:\n  oprc cluster list -o wide")]
    List {
        #[command(flatten)]
        show: Show,
        #[command(flatten)]
        remote: Remote,
    },
    /// Tell how clusters are; fails where one isn't healthy.
    #[command(after_help = "Example:\n  oprc cluster health east")]
    Health {
        /// The cluster; all of them, where left out.
        cluster: Option<String>,
        #[command(flatten)]
        show: Show,
        #[command(flatten)]
        remote: Remote,
    },
    /// Forget what was driven on a cluster that isn't configured any more; it stays there as it is.
    #[command(after_help = "Example:\n  oprc cluster forget east")]
    Forget {
        /// The cluster.
        cluster: String,
        #[command(flatten)]
        remote: Remote,
    },
}

/// Does what a command says.
pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::List { show, remote } => {
            let all: Vec<Cluster> = remote.client().await?.list("/clusters").await?;
            show.list(&all, |it| it.name.clone(), |wide| table(&all, wide))?;
        }
        Command::Forget { cluster, remote } => {
            let path = format!("/clusters/{}", escape(&cluster));
            remote.client().await?.delete(&path).await?;
            say(&format!("cluster {cluster} is forgotten"));
        }
        Command::Health { cluster, show, remote } => {
            let client = remote.client().await?;
            let all: Vec<Cluster> = match &cluster {
                Some(name) => vec![client.get(&format!("/clusters/{}", escape(name))).await?],
                None => client.list("/clusters").await?,
            };
            show.list(&all, |it| it.name.clone(), |_| health(&all))?;
            let unwell: Vec<_> = all.iter().filter(|it| it.health != Health::Healthy).collect();
            if let [first, ..] = unwell.as_slice() {
                let (name, health) = (&first.name, word(&first.health));
                return Err(
                    Failure::Failed(format!("{name} is {health}: {}", first.message)).into()
                );
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn last_seen(cluster: &Cluster) -> String {
    cluster.last_seen.as_deref().map(age::since).unwrap_or_default()
}

fn table(all: &[Cluster], wide: bool) -> Table {
    let mut headers = vec!["CLUSTER", "HEALTH", "NODES", "UNITS", "DEFAULT", "LAST SEEN"];
    if wide {
        headers.extend(["PROFILE", "CAN", "TEMPLATES", "URL"]);
    }
    let mut table = Table::new(&headers);
    for it in all {
        let nodes = it.nodes.map(|nodes| match it.ready_nodes {
            Some(ready) => format!("{ready}/{nodes}"),
            None => nodes.to_string(),
        });
        let mut row = vec![
            it.name.clone(),
            word(&it.health),
            nodes.unwrap_or_default(),
            it.units.to_string(),
            if it.default { "yes" } else { "no" }.to_owned(),
            last_seen(it),
        ];
        if wide {
            let can =
                it.capabilities.iter().filter(|(_, can)| **can).map(|(name, _)| name.as_str());
            let can = can.collect::<Vec<_>>().join(",");
            row.extend([it.profile.clone(), can, it.templates.join(","), it.url.clone()]);
        }
        table.painted(row, 1);
    }
    table
}

fn health(all: &[Cluster]) -> Table {
    let mut table = Table::new(&["CLUSTER", "HEALTH", "LAST SEEN", "MESSAGE"]);
    for it in all {
        table
            .painted(vec![it.name.clone(), word(&it.health), last_seen(it), it.message.clone()], 1);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_are_not_known_are_left_open() {
        let mut cluster = Cluster { name: "east".to_owned(), ..Cluster::default() };
        let told = |cluster: &Cluster| {
            let text = table(std::slice::from_ref(cluster), false).render(false);
            anstream::adapter::strip_str(&text).to_string()
        };
        assert_eq!(told(&cluster), "east   UNREACHABLE   -   0   no   -\n");
        (cluster.nodes, cluster.ready_nodes) = (Some(3), Some(2));
        assert!(told(&cluster).contains("2/3"));
    }
}
