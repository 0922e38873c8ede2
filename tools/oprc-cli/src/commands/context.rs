//! `oprc context`: named connections to package managers.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::Subcommand;
use serde::Serialize;

use crate::{
    client::Client,
    contexts::{Contexts, DEFAULT_SERVER, KubeconfigRef, absolute},
    error::CliError,
    output::{OutputArgs, Table, note, print},
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
    context: &'a crate::contexts::Context,
}

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    let path = Contexts::path()?;
    let mut contexts = Contexts::load(&path)?;
    match command {
        Command::List { show } => list(&contexts, &show)?,
        Command::Current => {
            let message = "no current context; set one with `oprc context use NAME`";
            let current =
                contexts.current.ok_or_else(|| CliError::InvalidInput(message.to_owned()))?;
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
                let kube = KubeconfigRef {
                    kubeconfig: kubeconfig.as_ref().map(absolute),
                    context: kube_context,
                };
                context.clusters.insert(cluster, kube);
            }
            // Rejects a context that couldn't be used.
            let second = std::time::Duration::from_secs(1);
            if context.tunnel.is_none() {
                Client::new(&context.server, None, context.ca.as_deref(), second)?;
            }
            contexts.current.get_or_insert_with(|| name.clone());
            contexts.save(&path)?;
            note(&format!("context {name} saved in {}", path.display()));
        }
        Command::Delete { name } => {
            if contexts.contexts.remove(&name).is_none() {
                return Err(contexts.not_found(&name).into());
            }
            contexts.current = contexts.current.filter(|current| *current != name);
            contexts.save(&path)?;
            note(&format!("context {name} deleted"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(contexts: &Contexts, show: &OutputArgs) -> Result<()> {
    let rows: Vec<_> = contexts
        .contexts
        .iter()
        .map(|(name, context)| {
            let current = contexts.current.as_ref() == Some(name);
            Row { name, current, context }
        })
        .collect();
    show.list(
        &rows,
        |row| row.name.to_owned(),
        |wide| {
            let mut headers = vec!["CURRENT", "NAME", "SERVER"];
            if wide {
                headers.extend(["TOKEN FILE", "CA", "CLUSTERS"]);
            }
            let mut table = Table::new(&headers);
            for row in &rows {
                let current = if row.current { "*" } else { "" };
                let mut cells =
                    vec![current.to_owned(), row.name.to_owned(), row.context.server.clone()];
                if wide {
                    let file = |path: &Option<PathBuf>| {
                        path.as_ref().map(|it| it.display().to_string()).unwrap_or_default()
                    };
                    let clusters: Vec<_> =
                        row.context.clusters.keys().map(String::as_str).collect();
                    let (token, ca) = (file(&row.context.token_file), file(&row.context.ca));
                    cells.extend([token, ca, clusters.join(",")]);
                }
                table.row(cells);
            }
            table
        },
    )
}
