//! `oprc sandbox`: clusters of this machine.

use std::{
    fmt::Write as _,
    fs::File,
    io::Read as _,
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
    supervisor::{self, ComponentStatus, State},
};
use serde::Serialize;

use crate::output::{Show, Table, age, print, print_bytes};

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
    List {
        #[command(flatten)]
        show: Show,
    },
    /// Tell how the components of a cluster are.
    #[command(after_help = "Example:\n  oprc sandbox status")]
    Status {
        #[command(flatten)]
        name: Name,
        #[command(flatten)]
        show: Show,
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
        Command::List { show } => list(&show).await?,
        Command::Status { name, show } => {
            return status(&Cluster::open(&name.cluster)?, &show).await;
        }
        Command::Kubeconfig { name } => {
            print(&format!("{}\n", Cluster::open(&name.cluster)?.kubeconfig().display()))?;
        }
        Command::Kubectl { name, arguments } => {
            use std::os::unix::process::CommandExt as _;
            let error = Cluster::open(&name.cluster)?.kubectl().args(arguments).exec();
            return Err(error).context("starting kubectl");
        }
        Command::LoadImage { name, file } => {
            for image in Cluster::open(&name.cluster)?.load_image(&file).await? {
                print(&format!("{image}\n"))?;
            }
        }
        Command::Logs { name, component } => {
            let log = Cluster::open(&name.cluster)?.log(&component)?;
            let mut file =
                File::open(&log).with_context(|| format!("opening {}", log.display()))?;
            let mut part = vec![0; 64 << 10];
            loop {
                let read = file.read(&mut part).context("reading a log")?;
                match part.get(..read) {
                    None | Some([]) => break,
                    Some(bytes) => print_bytes(bytes)?,
                }
            }
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
    let (name, nodes, kind) = (&spec.name, spec.nodes, kind(spec.kind));
    let mut text = format!("Cluster '{name}' is ready: {nodes} {kind} node(s).\n");
    let _ = writeln!(text, "  API         {}", spec.api_url());
    if let Some(url) = spec.prometheus_url() {
        let _ = writeln!(text, "  Prometheus  {url}");
    }
    let _ = writeln!(text, "  kubeconfig  {}", cluster.kubeconfig().display());
    print(&text)
}

fn kind(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::Real => "real",
        NodeKind::Simulated => "simulated",
    }
}

/// A cluster in a list.
#[derive(Serialize)]
struct Listed {
    name: String,
    /// The kind of its nodes; nothing where it can't be read any more.
    node: Option<NodeKind>,
    nodes: Option<u16>,
    state: &'static str,
}

async fn list(show: &Show) -> Result<()> {
    let mut all = Vec::new();
    for name in Spec::names()? {
        let Ok(cluster) = Cluster::open(&name) else {
            all.push(Listed { name, node: None, nodes: None, state: "broken" });
            continue;
        };
        let (node, nodes) = (Some(cluster.spec().kind), Some(cluster.spec().nodes));
        let state = if cluster.status().await.is_ok() { "running" } else { "not running" };
        all.push(Listed { name, node, nodes, state });
    }
    show.list(
        &all,
        |it| it.name.clone(),
        |_| {
            let mut table = Table::new(&["NAME", "NODE", "NODES", "STATE"]);
            for it in &all {
                let node = it.node.map(kind).unwrap_or_default();
                let nodes = it.nodes.map(|nodes| nodes.to_string()).unwrap_or_default();
                table.row([it.name.as_str(), node, &nodes, it.state]);
            }
            table
        },
    )
}

/// Prints how each component is; fails where one doesn't run.
async fn status(cluster: &Cluster, show: &Show) -> Result<ExitCode> {
    let components = cluster.status().await?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    show.list(&components, |it| it.name.clone(), |_| table(&components, now))?;
    let all_run = components.iter().all(|component| component.state == State::Running);
    Ok(if all_run { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn table(components: &[ComponentStatus], now: Duration) -> Table {
    let mut table = Table::new(&["COMPONENT", "STATE", "PID", "FOR", "RESTARTS", "LAST END"]);
    for it in components {
        let state = match it.state {
            State::Waiting => "waiting",
            State::Running => "running",
            State::Frozen => "frozen",
            State::Stopped => "stopped",
        };
        table.row([
            it.name.clone(),
            state.to_owned(),
            it.pid.map(|pid| pid.to_string()).unwrap_or_default(),
            age::short(now.saturating_sub(Duration::from_secs(it.since))),
            it.restarts.to_string(),
            it.last_end.clone().unwrap_or_default(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn etcd() -> ComponentStatus {
        ComponentStatus {
            name: "etcd".to_owned(),
            state: State::Running,
            pid: Some(7),
            restarts: 0,
            last_end: None,
            since: 100,
        }
    }

    #[test]
    fn components_are_rows_and_documents() {
        let text = table(&[etcd()], Duration::from_secs(103)).render(false);
        assert_eq!(text, "etcd   running   7   3s   0   -\n");
        let document = serde_json::to_value(etcd()).unwrap();
        assert_eq!(document["state"], "running");
        assert_eq!(document["name"], "etcd");
    }

    #[test]
    fn a_cluster_that_cannot_be_read_is_listed() {
        let broken = Listed { name: "a".to_owned(), node: None, nodes: None, state: "broken" };
        let told = serde_json::to_string(&broken).unwrap();
        assert_eq!(told, r#"{"name":"a","node":null,"nodes":null,"state":"broken"}"#);
    }
}
