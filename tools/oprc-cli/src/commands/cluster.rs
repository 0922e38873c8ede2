//! `oprc cluster`: clusters of the package manager.

use anyhow::{Result, bail};
use clap::Subcommand;
use oprc_rest::{Cluster, Health};

use crate::{
    client::escape,
    connection::{ApiArgs, ConnectionArgs},
    error::CliError,
    output::{Column, api_name, duration, note},
};

const COLUMNS: &[Column<Cluster>] = &[
    ("CLUSTER", |it| it.name.clone()),
    ("HEALTH", |it| api_name(&it.health)),
    ("NODES", |it| match (it.ready_nodes, it.nodes) {
        (Some(ready), Some(all)) => format!("{ready}/{all}"),
        (None, Some(all)) => all.to_string(),
        (_, None) => String::new(),
    }),
    ("UNITS", |it| it.units.to_string()),
    ("DEFAULT", |it| if it.default { "yes" } else { "no" }.to_owned()),
    ("LAST SEEN", last_seen),
];
const WIDE_COLUMNS: &[Column<Cluster>] = &[
    ("PROFILE", |it| it.profile.clone()),
    ("CAPABILITIES", |it| {
        let available = it.capabilities.iter().filter(|(_, available)| **available);
        available.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(",")
    }),
    ("TEMPLATES", |it| it.templates.join(",")),
    ("URL", |it| it.url.clone()),
];
const HEALTH_COLUMNS: &[Column<Cluster>] = &[
    ("CLUSTER", |it| it.name.clone()),
    ("HEALTH", |it| api_name(&it.health)),
    ("LAST SEEN", last_seen),
    ("MESSAGE", |it| it.message.clone()),
];

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List clusters.
    #[command(visible_alias = "ls", after_help = "Example:\n  oprc cluster list -o wide")]
    List {
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Show the health of clusters; fails unless all are healthy.
    #[command(after_help = "Example:\n  oprc cluster health east")]
    Health {
        /// Cluster [default: all].
        cluster: Option<String>,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Remove PM's records of a cluster's units; running classes stay.
    #[command(visible_alias = "remove", after_help = "Example:\n  oprc cluster forget east")]
    Forget {
        /// Name of the cluster.
        cluster: String,
        #[command(flatten)]
        connection: ConnectionArgs,
    },
}

pub(crate) async fn run(command: Command) -> Result<()> {
    let name = |it: &Cluster| it.name.clone();
    match command {
        Command::List { api } => api.list("/clusters", name, COLUMNS, WIDE_COLUMNS).await?,
        Command::Forget { cluster, connection } => {
            let path = format!("/clusters/{}", escape(&cluster));
            connection.client().await?.delete(&path).await?;
            note(&format!("records of cluster {cluster} removed"));
        }
        Command::Health { cluster, api } => {
            let client = api.client().await?;
            let all: Vec<Cluster> = match &cluster {
                Some(name) => vec![client.get(&format!("/clusters/{}", escape(name))).await?],
                None => client.list("/clusters").await?,
            };
            api.show.list(&all, name, HEALTH_COLUMNS, &[])?;
            if let Some(first) = all.iter().find(|it| it.health != Health::Healthy) {
                let Cluster { name, message, .. } = first;
                bail!(CliError::Failed(format!(
                    "cluster {name} is {}: {message}\nhint: run `oprc check`",
                    api_name(&first.health)
                )));
            }
        }
    }
    Ok(())
}

fn last_seen(cluster: &Cluster) -> String {
    cluster.last_seen.as_deref().map(duration::age).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::table;

    #[test]
    fn shows_a_dash_for_unknown_node_counts() {
        let mut cluster = Cluster { name: "east".to_owned(), ..Cluster::default() };
        let rendered = |cluster: &Cluster| {
            let text = table(std::slice::from_ref(cluster), COLUMNS, false);
            anstream::adapter::strip_str(&text).to_string()
        };
        assert_eq!(rendered(&cluster), "east   UNREACHABLE   -   0   no   -\n");
        (cluster.nodes, cluster.ready_nodes) = (Some(3), Some(2));
        assert!(rendered(&cluster).contains("2/3"));
    }
}
