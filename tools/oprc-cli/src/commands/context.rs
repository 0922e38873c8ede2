//! `oprc context`: named connections to package managers.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, bail};
use clap::Subcommand;
use serde::Serialize;

use crate::{
    client::Client,
    contexts::{Context, Contexts, DEFAULT_SERVER, KubeconfigRef, absolute},
    error::CliError,
    output::{OutputArgs, note, print},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List contexts.
    #[command(visible_alias = "ls", after_help = "Example:\n  oprc context list")]
    List {
        #[command(flatten)]
        show: OutputArgs,
    },
    /// Print the name of the current context.
    #[command(after_help = "Example:\n  oprc context current")]
    Current,
    /// Set the current context.
    #[command(after_help = "Example:\n  oprc context use prod")]
    Use {
        /// Name of the context.
        name: String,
    },
    /// Create or change a context; options that are not given keep their value.
    #[command(
        after_help = "Examples:\n  oprc context set prod --server https://pm.example:8443 --token-file ~/.oprc-token --ca ca.pem\n  oprc context set prod --cluster east --kubeconfig ~/.kube/config --kube-context east-admin"
    )]
    Set {
        /// Name of the context.
        name: String,
        /// URL of the package manager.
        #[arg(long, value_name = "URL")]
        server: Option<String>,
        /// File with the bearer token.
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
        /// File with CA certificates to verify the server.
        #[arg(long, value_name = "FILE")]
        ca: Option<PathBuf>,
        /// Cluster to configure direct access to, for `logs` and `invoke`.
        #[arg(long)]
        cluster: Option<String>,
        /// Kubeconfig file of that cluster.
        #[arg(long, value_name = "FILE", requires = "cluster")]
        kubeconfig: Option<PathBuf>,
        /// Context of that file.
        #[arg(long, value_name = "NAME", requires = "cluster")]
        kube_context: Option<String>,
    },
    /// Delete a context.
    #[command(after_help = "Example:\n  oprc context delete prod")]
    Delete {
        /// Name of the context.
        name: String,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    name: &'a str,
    current: bool,
    #[serde(flatten)]
    context: &'a Context,
}

pub(crate) fn run(command: Command) -> Result<()> {
    let path = Contexts::path()?;
    let mut contexts = Contexts::load(&path)?;
    match command {
        Command::List { show } => list(&contexts, &show)?,
        Command::Current => {
            let message = "no current context; set one with `oprc context use NAME`";
            let Some(current) = contexts.current else {
                bail!(CliError::InvalidInput(message.to_owned()));
            };
            print(&format!("{current}\n"))?;
        }
        Command::Use { name } => {
            contexts.select(Some(&name))?;
            contexts.current = Some(name.clone());
            contexts.save(&path)?;
            note(&format!("switched to context {name}"));
        }
        Command::Set { name, server, token_file, ca, cluster, kubeconfig, kube_context } => {
            let context = contexts.contexts.entry(name.clone()).or_default();
            if let Some(server) = server {
                context.server = server;
                context.tunnel = None;
            } else if context.server.is_empty() && context.tunnel.is_none() {
                DEFAULT_SERVER.clone_into(&mut context.server);
            }
            context.token_file = token_file.as_ref().map(absolute).or(context.token_file.take());
            context.ca = ca.as_ref().map(absolute).or(context.ca.take());
            if let Some(cluster) = cluster {
                let kubeconfig = kubeconfig.as_ref().map(absolute);
                let kube = KubeconfigRef { kubeconfig, context: kube_context };
                context.clusters.insert(cluster, kube);
            }
            // Rejects a context that couldn't be used.
            if context.tunnel.is_none() {
                Client::new(&context.server, None, context.ca.as_deref(), Duration::ZERO)?;
            }
            contexts.current.get_or_insert_with(|| name.clone());
            contexts.save(&path)?;
            note(&format!("context {name} saved in {}", path.display()));
        }
        Command::Delete { name } => {
            if contexts.contexts.remove(&name).is_none() {
                bail!(contexts.not_found(&name));
            }
            contexts.current = contexts.current.filter(|current| *current != name);
            contexts.save(&path)?;
            note(&format!("context {name} deleted"));
        }
    }
    Ok(())
}

fn list(contexts: &Contexts, show: &OutputArgs) -> Result<()> {
    let current = contexts.current.as_ref();
    let rows = contexts.contexts.iter();
    let rows = rows.map(|(name, context)| Row { name, current: current == Some(name), context });
    show.list(
        &rows.collect::<Vec<_>>(),
        |row| row.name.to_owned(),
        &[
            ("CURRENT", |row| if row.current { "*" } else { "" }.to_owned()),
            ("NAME", |row| row.name.to_owned()),
            ("SERVER", |row| row.context.server.clone()),
        ],
        &[
            ("TOKEN FILE", |row| shown(row.context.token_file.as_ref())),
            ("CA", |row| shown(row.context.ca.as_ref())),
            ("CLUSTERS", |row| {
                let clusters: Vec<_> = row.context.clusters.keys().map(String::as_str).collect();
                clusters.join(",")
            }),
        ],
    )
}

fn shown(path: Option<&PathBuf>) -> String {
    path.map(|it| it.display().to_string()).unwrap_or_default()
}
