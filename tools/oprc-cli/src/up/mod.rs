//! `oprc up` and `oprc down`: from nothing to a sample class that answers, and back.

mod beside;
mod install;
mod local;
mod remote;
mod token;

use std::{fmt::Write as _, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Result;
use clap::Parser as _;
use oprc_sandbox::{DEFAULT_NAME, image::ImageRef};

use crate::{
    Arguments,
    client::Client,
    contexts::{Context, Contexts, Kube},
    failure::Failure,
    files,
    output::{clean_lines, print, say},
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
    /// How many clusters are made on this machine; more that are there from before stay.
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
    /// All classes of that cluster too, with everything that they run; they go on without it.
    #[arg(long, requires = "context")]
    classes: bool,
}

impl Up {
    /// Where images come from, those in nodes included.
    fn images_with<'a>(&'a self, loaded: &'a [ImageRef]) -> install::Images<'a> {
        install::Images { registry: &self.registry, tag: &self.tag, loaded }
    }

    /// The command that ends all of this, classes included.
    fn down(&self) -> String {
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
    if command.no_sample {
        return Ok(ExitCode::SUCCESS);
    }
    let key = sample(&command, runs).await?;
    let mut lines = vec![format!("oprc status {key}")];
    if runs {
        lines.push(format!("oprc invoke {key} greet --path '/?name=you'"));
    }
    lines.extend(["oprc check".to_owned(), command.down()]);
    print(&format!("\nHow to go on:\n  {}\n", lines.join("\n  ")))?;
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
    let taken = command.context.as_ref().map(|it| Kube::of(command.kubeconfig.as_ref(), it));
    let ours = |it: &Context| it.tunnel.as_ref().map(|tunnel| &tunnel.kube) == taken.as_ref();
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

/// Publishes the sample, deploys it and calls it where it runs; gives the deployment's key.
async fn sample(command: &Up, runs: bool) -> Result<String> {
    let context = command.name.as_str();
    let remote = Remote::of_context(context);
    let documents = files::documents(&command.images_with(&[]).named(SAMPLE), "the sample")?;
    let packages: Vec<_> = files::packages(&documents).cloned().collect();
    let key = packages.first().map(|it| it.name.clone()).unwrap_or_default();
    match wanted::publish(&remote.client().await?, packages).await {
        // With images of another registry it can't take the place of what was published before.
        Err(error) if matches!(error.downcast_ref(), Some(Failure::Refused(_))) => {
            say(&clean_lines(&format!("the sample stays as it is: {error:#}")));
        }
        published => drop(published?),
    }
    let deploy = vec!["deploy", &key, "--context", context];
    let invoke = vec!["invoke", &key, "greet", "--path", "/?name=you", "--context", context];
    for arguments in [deploy].into_iter().chain(runs.then_some(invoke)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_back_is_the_way_that_was_taken() {
        for (given, told) in [
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
            assert_eq!(up.down(), told);
        }
    }
}
