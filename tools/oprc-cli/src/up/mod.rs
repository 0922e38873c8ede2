//! `oprc up` and `oprc down`: install OaaS with a sample, and uninstall it.

mod existing_cluster;
mod install;
mod local;
mod local_pm;
mod token;

use std::{fmt::Write as _, path::PathBuf, time::Duration};

use anyhow::Result;
use clap::Parser as _;
use oprc_sandbox::{DEFAULT_NAME, image::ImageRef};

use crate::{
    Arguments,
    client::Client,
    connection::ConnectionArgs,
    contexts::{Context, Contexts, KubeconfigRef},
    error::CliError,
    files,
    output::{note, note_styled, print, sanitize_lines},
    sandbox::Node,
    target,
};

const SAMPLE: &str = include_str!("../../../../examples/packages/hello.yaml");
const PM_READY_TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  oprc up                         # a local cluster\n  oprc up --clusters 2 --knative\n  oprc up --context kind-dev --registry registry.example/oaas"
)]
pub(crate) struct Up {
    /// Name of the cluster and of the context.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAME)]
    name: String,
    /// Number of local clusters; existing clusters beyond this number are kept.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    clusters: u8,
    /// Kind of nodes.
    #[arg(long, value_enum, default_value_t)]
    node: Node,
    /// Install Knative Serving with Kourier.
    #[arg(long)]
    knative: bool,
    /// Directory with the image archives that `make image` creates.
    #[arg(long, value_name = "DIR", default_value = "target")]
    images: PathBuf,
    /// Don't deploy the sample package.
    #[arg(long)]
    no_sample: bool,
    /// Context of the kubeconfig to install into, for an existing cluster such as kind or k3d [default:
    /// a new local cluster].
    #[arg(long, value_name = "NAME", conflicts_with_all = ["clusters", "node", "knative", "images"])]
    context: Option<String>,
    /// Kubeconfig file of the existing cluster.
    #[arg(long, value_name = "FILE", requires = "context")]
    kubeconfig: Option<PathBuf>,
    /// Registry that the existing cluster pulls images from.
    #[arg(long, default_value = install::DEFAULT_REGISTRY, requires = "context")]
    registry: String,
    /// Tag of the images.
    #[arg(long, default_value = install::DEFAULT_TAG, requires = "context")]
    tag: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  oprc down\n  oprc down --context kind-dev --classes")]
pub(crate) struct Down {
    /// Name that was given to `oprc up`.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAME)]
    name: String,
    /// Context of the kubeconfig to uninstall from [default: the local cluster].
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Kubeconfig file of the existing cluster.
    #[arg(long, value_name = "FILE", requires = "context")]
    kubeconfig: Option<PathBuf>,
    /// Also delete all classes of the cluster and their workloads; by default they keep running.
    #[arg(long, requires = "context")]
    classes: bool,
}

impl Up {
    fn images_with<'a>(&'a self, loaded: &'a [ImageRef]) -> install::Images<'a> {
        install::Images { registry: &self.registry, tag: &self.tag, loaded }
    }

    /// The `oprc down` command that reverts this one, including classes.
    fn down_command(&self) -> String {
        let mut down = "oprc down".to_owned();
        if self.name != DEFAULT_NAME {
            let _ = write!(down, " --name {}", self.name);
        }
        if let Some(kube) = &self.context {
            let _ = write!(down, " --context {kube}");
            if let Some(file) = &self.kubeconfig {
                let _ = write!(down, " --kubeconfig {}", file.display());
            }
            down.push_str(" --classes");
        }
        down
    }
}

/// Idempotent.
pub(crate) async fn up(command: Up) -> Result<()> {
    let runs_containers = match &command.context {
        Some(kube) => {
            existing_cluster::up(&command, kube).await?;
            true
        }
        None => local::up(&command).await?,
    };
    let path = Contexts::path()?;
    note(&format!("switched to context {} ({})", command.name, path.display()));
    if command.no_sample {
        return Ok(());
    }
    let key = deploy_sample(&command, runs_containers).await?;
    let mut lines = vec![format!("oprc status {key}")];
    if runs_containers {
        lines.push(format!("oprc invoke {key} greet --path '/?name=you'"));
    }
    lines.extend(["oprc check".to_owned(), command.down_command()]);
    print(&format!("\nNext steps:\n  {}\n", lines.join("\n  ")))
}

pub(crate) async fn down(command: Down) -> Result<()> {
    match &command.context {
        Some(kube) => existing_cluster::down(&command, kube).await?,
        None => local::down(&command.name).await?,
    }
    let path = Contexts::path()?;
    let mut contexts = Contexts::load(&path)?;
    // The context of that name may point to another installation.
    let uninstalled =
        command.context.as_ref().map(|it| KubeconfigRef::of(command.kubeconfig.as_ref(), it));
    let matches =
        |it: &Context| it.tunnel.as_ref().map(|tunnel| &tunnel.kube) == uninstalled.as_ref();
    if contexts.contexts.get(&command.name).is_some_and(matches)
        && let Some(removed) = contexts.contexts.remove(&command.name)
    {
        if let (Some(_), Some(token)) = (removed.tunnel, removed.token_file) {
            // The token is no longer valid.
            let _ = std::fs::remove_file(token);
        }
        contexts.current = contexts.current.filter(|current| *current != command.name);
        contexts.save(&path)?;
    }
    Ok(())
}

/// Saves a context and makes it the current one.
fn save_context(name: &str, context: Context) -> Result<()> {
    let path = Contexts::path()?;
    let mut contexts = Contexts::load(&path)?;
    contexts.contexts.insert(name.to_owned(), context);
    contexts.current = Some(name.to_owned());
    contexts.save(&path)
}

async fn wait_for_pm(client: &Client) -> Result<()> {
    let ready = async {
        // A server that isn't running yet can only be polled.
        while client.text("/health/ready").await.is_err() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(PM_READY_TIMEOUT, ready).await.map_err(|_| {
        let (server, seconds) = (client.server(), PM_READY_TIMEOUT.as_secs());
        let message = format!("the package manager at {server} is not ready after {seconds} s");
        CliError::Unavailable(message).into()
    })
}

/// Publishes and deploys the sample, and invokes it if nodes run containers. Returns the
/// deployment's key.
async fn deploy_sample(command: &Up, runs_containers: bool) -> Result<String> {
    let context = command.name.as_str();
    let connection = ConnectionArgs::of_context(context);
    let documents = files::documents(&command.images_with(&[]).rewrite(SAMPLE), "the sample")?;
    let packages: Vec<_> = files::packages(&documents).cloned().collect();
    let key = packages.first().map(|it| it.name.clone()).unwrap_or_default();
    match target::publish(&connection.client().await?, packages).await {
        // The same version with images of another registry is rejected.
        Err(error) if matches!(error.downcast_ref(), Some(CliError::Rejected(_))) => {
            let message = format!("using the sample that is already published: {error:#}");
            note_styled(&sanitize_lines(&message));
        }
        published => drop(published?),
    }
    let deploy = vec!["deploy", &key, "--context", context];
    let invoke = vec!["invoke", &key, "greet", "--path", "/?name=you", "--context", context];
    for arguments in [deploy].into_iter().chain(runs_containers.then_some(invoke)) {
        note(&format!("$ oprc {}", arguments.join(" ")));
        let command =
            Arguments::try_parse_from([&["oprc"], arguments.as_slice()].concat())?.command;
        Box::pin(crate::run(command)).await?;
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn down_command_reverts_the_up_command() {
        for (given, expected) in [
            (vec![], "oprc down"),
            (vec!["--name", "a", "--clusters", "2"], "oprc down --name a"),
            (
                vec!["--context", "kind-dev", "--kubeconfig", "./f"],
                "oprc down --context kind-dev --kubeconfig ./f --classes",
            ),
        ] {
            let all = ["oprc", "up"].into_iter().chain(given);
            let crate::Command::Up(up) = Arguments::try_parse_from(all).unwrap().command else {
                panic!("not up")
            };
            assert_eq!(up.down_command(), expected);
        }
    }
}
