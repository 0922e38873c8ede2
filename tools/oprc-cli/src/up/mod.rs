//! `oprc up` and `oprc down`: from nothing to a sample class that answers, and back.

mod beside;
mod install;
mod local;
mod remote;
mod token;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Result;
use clap::Parser as _;
use oprc_sandbox::DEFAULT_NAME;

use crate::{
    Arguments,
    client::Client,
    contexts::{Context, Contexts},
    failure::Failure,
    files,
    output::{print, say},
    remote::Remote,
    sandbox::Node,
    wanted,
};

/// The package that is tried.
const SAMPLE: &str = include_str!("../../../../examples/packages/hello.yaml");
/// How long a package manager that was just started may take to answer.
const READY: Duration = Duration::from_mins(1);

/// What is to be there.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  oprc up                         # a cluster on this machine\n  oprc up --clusters 2 --knative\n  oprc up --context kind-dev --registry registry.example/oaas"
)]
pub(crate) struct Up {
    /// What it is all called: the cluster, and the context that `oprc` knows it by.
    #[arg(long, value_name = "N", default_value = DEFAULT_NAME)]
    name: String,
    /// How many clusters are made on this machine.
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    clusters: u8,
    /// Nodes that run containers, or nodes that only look like it.
    #[arg(long, value_enum, default_value_t)]
    node: Node,
    /// Knative Serving with Kourier in the clusters.
    #[arg(long)]
    knative: bool,
    /// The folder with the archives of the images, as `make image` leaves them.
    #[arg(long, value_name = "FOLDER", default_value = "target")]
    images: PathBuf,
    /// Don't deploy the sample.
    #[arg(long)]
    no_sample: bool,
    /// Take a cluster that is there already, by its context in the kubeconfig file: kind, k3d, any.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["clusters", "node", "knative", "images"])]
    context: Option<String>,
    /// The kubeconfig file of that cluster.
    #[arg(long, value_name = "FILE", requires = "context")]
    kubeconfig: Option<PathBuf>,
    /// Where that cluster pulls the images from.
    #[arg(long, default_value = install::REGISTRY, requires = "context")]
    registry: String,
    /// The images' tag.
    #[arg(long, default_value = install::TAG, requires = "context")]
    tag: String,
}

/// What is to end.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  oprc down\n  oprc down --context kind-dev --classes")]
pub(crate) struct Down {
    /// What it is all called.
    #[arg(long, value_name = "N", default_value = DEFAULT_NAME)]
    name: String,
    /// Take the package manager and CRM out of a cluster that `up --context` brought them to.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// The kubeconfig file of that cluster.
    #[arg(long, value_name = "FILE", requires = "context")]
    kubeconfig: Option<PathBuf>,
    /// All classes of that cluster too, with everything that they run.
    #[arg(long, requires = "context")]
    classes: bool,
}

/// Brings everything up. Run again, it changes nothing.
pub(crate) async fn up(command: Up) -> Result<ExitCode> {
    let runs = match &command.context {
        Some(kube) => {
            remote::up(&command, kube).await?;
            true
        }
        None => local::up(&command).await?,
    };
    let path = Contexts::path()?;
    say(&format!("context {} is the current one, in {}", command.name, path.display()));
    if command.no_sample || !runs {
        return Ok(ExitCode::SUCCESS);
    }
    let told = sample(&command.name).await?;
    let mut down = "oprc down".to_owned();
    if command.name != DEFAULT_NAME {
        down = format!("{down} --name {}", command.name);
    }
    if let Some(kube) = &command.context {
        down = format!("{down} --context {kube}");
    }
    print(&format!(
        "\nHow to go on:\n  oprc status {told}\n  oprc invoke {told} greet --path '/?name=you'\n  \
         oprc check\n  {down}\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Ends it all.
pub(crate) async fn down(command: Down) -> Result<ExitCode> {
    match &command.context {
        Some(kube) => remote::down(&command, kube).await?,
        None => local::down(&command.name).await?,
    }
    let path = Contexts::path()?;
    let mut contexts = Contexts::load(&path)?;
    // One that leads elsewhere isn't what was taken away.
    let ours = |it: &Context| match (&command.context, &it.tunnel) {
        (Some(kube), Some(tunnel)) => tunnel.kube.context.as_ref() == Some(kube),
        (kube, tunnel) => kube.is_none() && tunnel.is_none(),
    };
    if contexts.contexts.get(&command.name).is_some_and(ours)
        && let Some(gone) = contexts.contexts.remove(&command.name)
    {
        if let (Some(_), Some(token)) = (gone.tunnel, gone.token_file) {
            // It opens nothing any more.
            let _ = std::fs::remove_file(token);
        }
        contexts.current = contexts.current.filter(|current| *current != command.name);
        contexts.save(&path)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Keeps a context, and makes it the current one.
fn keep(name: &str, context: Context) -> Result<()> {
    let path = Contexts::path()?;
    let mut contexts = Contexts::load(&path)?;
    contexts.contexts.insert(name.to_owned(), context);
    contexts.current = Some(name.to_owned());
    contexts.save(&path)
}

/// Waits until a package manager says that it is ready.
async fn ready(client: &Client) -> Result<()> {
    let asked = async {
        // Nothing can be watched before it is there.
        while client.text("/health/ready").await.is_err() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(READY, asked).await.map_err(|_| {
        let told = format!("the package manager at {} isn't ready", client.server());
        Failure::Away(told).into()
    })
}

/// Publishes the sample, deploys it and calls it; gives the deployment's key.
async fn sample(context: &str) -> Result<String> {
    let remote = Remote::of_context(context);
    let documents = files::documents(SAMPLE, "the sample")?;
    let packages: Vec<_> = files::packages(&documents).cloned().collect();
    let key = packages.first().map(|it| it.name.clone()).unwrap_or_default();
    wanted::publish(&remote.client().await?, packages).await?;
    for arguments in [
        vec!["deploy", &key, "--context", context],
        vec!["invoke", &key, "greet", "--path", "/?name=you", "--context", context],
    ] {
        say(&format!("$ oprc {}", arguments.join(" ")));
        let command =
            Arguments::try_parse_from([&["oprc"], arguments.as_slice()].concat())?.command;
        let code = Box::pin(crate::run(command)).await?;
        if code != ExitCode::SUCCESS {
            return Err(Failure::Failed("the sample doesn't answer".to_owned()).into());
        }
    }
    Ok(key)
}
