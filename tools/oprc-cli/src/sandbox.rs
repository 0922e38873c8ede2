//! `oprc sandbox`: clusters of this machine.

use std::{
    fs::File,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use oprc_sandbox::{
    Cluster, DEFAULT_NAME, NodeChoice, NodeKind, Options, Spec,
    image::Image,
    node,
    supervisor::{self, State},
};

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a cluster, or find it running, and return when it is ready.
    #[command(after_help = "Example:\n  oprc sandbox up --prometheus")]
    Up {
        #[command(flatten)]
        name: Name,
        /// Nodes that run containers, or nodes that only look like it.
        #[arg(long, value_enum, default_value_t)]
        node: Node,
        /// How many nodes [default: 1].
        #[arg(long, value_name = "K")]
        nodes: Option<u16>,
        /// A Prometheus beside the cluster, with the ServiceMonitor and PodMonitor kinds.
        #[arg(long)]
        prometheus: bool,
        /// Knative Serving with Kourier in the cluster.
        #[arg(long)]
        knative: bool,
        /// Let etcd acknowledge writes before they are on the disk: for tests.
        #[arg(long)]
        no_fsync: bool,
    },
    /// End a cluster and remove all that belongs to it.
    #[command(after_help = "Example:\n  oprc sandbox down")]
    Down {
        #[command(flatten)]
        name: Name,
    },
    /// List the clusters of this user.
    #[command(after_help = "Example:\n  oprc sandbox list")]
    List,
    /// Tell how the components of a cluster are.
    #[command(after_help = "Example:\n  oprc sandbox status")]
    Status {
        #[command(flatten)]
        name: Name,
    },
    /// Print the path of the kubeconfig file of a cluster.
    #[command(after_help = "Example:\n  export KUBECONFIG=$(oprc sandbox kubeconfig)")]
    Kubeconfig {
        #[command(flatten)]
        name: Name,
    },
    /// Run kubectl on a cluster.
    #[command(after_help = "Example:\n  oprc sandbox kubectl -- get pods --all-namespaces")]
    Kubectl {
        #[command(flatten)]
        name: Name,
        /// What kubectl is to do.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Load an OCI image archive into the nodes of a cluster.
    #[command(after_help = "Example:\n  oprc sandbox load-image target/hello-fn.oci.tar")]
    LoadImage {
        #[command(flatten)]
        name: Name,
        /// The archive.
        file: PathBuf,
    },
    /// Print the log of a component.
    #[command(after_help = "Example:\n  oprc sandbox logs supervisor")]
    Logs {
        #[command(flatten)]
        name: Name,
        /// The component, as `status` names it, or `supervisor`.
        component: String,
    },
    /// Make an OCI image archive of a static program.
    #[command(
        after_help = "Example:\n  oprc sandbox image --name example.org/fn:dev ./fn fn.oci.tar"
    )]
    Image {
        /// The image's name with registry and tag.
        #[arg(long)]
        name: String,
        /// The program.
        program: PathBuf,
        /// The archive to write.
        archive: PathBuf,
    },
    #[command(hide = true)]
    Supervise { name: String },
    #[command(hide = true)]
    HoldNode { folder: PathBuf },
}

/// Which cluster.
#[derive(Debug, Args)]
pub(crate) struct Name {
    /// The cluster's name.
    #[arg(long = "name", value_name = "N", default_value = DEFAULT_NAME)]
    cluster: String,
}

/// Kinds of nodes.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(crate) enum Node {
    /// Real ones where this machine can have them.
    #[default]
    Auto,
    /// Real ones: kubelet and containerd, which takes root.
    Real,
    /// Simulated ones: pods turn ready and nothing runs.
    Simulated,
}

impl From<Node> for NodeChoice {
    fn from(node: Node) -> Self {
        match node {
            Node::Auto => Self::Auto,
            Node::Real => Self::Real,
            Node::Simulated => Self::Simulated,
        }
    }
}

/// Does what a command says.
pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Up { name, node, nodes, prometheus, knative, no_fsync } => {
            let options = Options { node: node.into(), nodes, prometheus, knative, no_fsync };
            let cluster = Cluster::up(&name.cluster, &options).await?;
            describe(cluster.spec(), &cluster)?;
        }
        Command::Down { name } => {
            Cluster::down(&name.cluster).await?;
            eprintln!("Cluster '{}' is gone.", name.cluster);
        }
        Command::List => list().await?,
        Command::Status { name } => return status(&Cluster::open(&name.cluster)?).await,
        Command::Kubeconfig { name } => {
            println!("{}", Cluster::open(&name.cluster)?.kubeconfig().display());
        }
        Command::Kubectl { name, arguments } => {
            use std::os::unix::process::CommandExt as _;
            let error = Cluster::open(&name.cluster)?.kubectl().args(arguments).exec();
            return Err(error).context("starting kubectl");
        }
        Command::LoadImage { name, file } => {
            for image in Cluster::open(&name.cluster)?.load_image(&file).await? {
                println!("{image}");
            }
        }
        Command::Logs { name, component } => {
            let log = Cluster::open(&name.cluster)?.log(&component)?;
            let mut file =
                File::open(&log).with_context(|| format!("opening {}", log.display()))?;
            let mut output = io::stdout().lock();
            io::copy(&mut file, &mut output)
                .and_then(|_| output.flush())
                .context("printing a log")?;
        }
        Command::Image { name, program, archive } => {
            if !program.is_file() {
                bail!(
                    "{} is not a file: name the program that the image is to run",
                    program.display()
                );
            }
            Image::of_program(&name, &program).write(&archive)?;
        }
        Command::Supervise { name } => supervisor::supervise(&name).await?,
        Command::HoldNode { folder } => node::hold(&folder).await?,
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(spec: &Spec, cluster: &Cluster) -> Result<()> {
    let kind = match spec.kind {
        NodeKind::Real => "real",
        NodeKind::Simulated => "simulated",
    };
    let mut out = io::stdout().lock();
    writeln!(out, "Cluster '{}' is ready: {} {kind} node(s).", spec.name, spec.nodes)?;
    writeln!(out, "  API         {}", spec.api_url())?;
    if let Some(url) = spec.prometheus_url() {
        writeln!(out, "  Prometheus  {url}")?;
    }
    writeln!(out, "  kubeconfig  {}", cluster.kubeconfig().display())?;
    Ok(())
}

async fn list() -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{:<20} {:<10} {:<6} STATE", "NAME", "NODE", "NODES")?;
    for name in Spec::names()? {
        let Ok(cluster) = Cluster::open(&name) else {
            writeln!(out, "{name:<20} {:<10} {:<6} broken", "-", "-")?;
            continue;
        };
        let kind = match cluster.spec().kind {
            NodeKind::Real => "real",
            NodeKind::Simulated => "simulated",
        };
        let state = if cluster.status().await.is_ok() { "running" } else { "not running" };
        writeln!(out, "{name:<20} {kind:<10} {:<6} {state}", cluster.spec().nodes)?;
    }
    Ok(())
}

/// Prints a line for each component; fails where one doesn't run.
async fn status(cluster: &Cluster) -> Result<ExitCode> {
    let components = cluster.status().await?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{:<26} {:<8} {:>8} {:>8} {:>8}  LAST END",
        "COMPONENT", "STATE", "PID", "FOR", "RESTARTS"
    )?;
    for component in &components {
        let state = match component.state {
            State::Waiting => "waiting",
            State::Running => "running",
            State::Frozen => "frozen",
            State::Stopped => "stopped",
        };
        let since = now.saturating_sub(Duration::from_secs(component.since)).as_secs();
        writeln!(
            out,
            "{:<26} {state:<8} {:>8} {:>7}s {:>8}  {}",
            component.name,
            component.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            since,
            component.restarts,
            component.last_end.as_deref().unwrap_or("-"),
        )?;
    }
    let all_run = components.iter().all(|component| component.state == State::Running);
    Ok(if all_run { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
