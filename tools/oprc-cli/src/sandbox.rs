//! `oprc sandbox`: local Kubernetes clusters.

use std::{
    fmt::Write as _,
    fs::File,
    io::Read as _,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Subcommand, ValueEnum};
use oprc_sandbox::{
    Cluster, DEFAULT_NAME, NodeChoice, NodeKind, Options, Spec,
    image::Image,
    node,
    supervisor::{self, ComponentStatus, State},
};
use serde::Serialize;

use crate::output::{Column, OutputArgs, api_name, duration, note, print, print_bytes};

const COMPONENT_COLUMNS: &[Column<ComponentStatus>] = &[
    ("COMPONENT", |it| it.name.clone()),
    ("STATE", |it| api_name(&it.state)),
    ("PID", |it| it.pid.map(|pid| pid.to_string()).unwrap_or_default()),
    ("FOR", |it| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        duration::short(now.saturating_sub(Duration::from_secs(it.since)))
    }),
    ("RESTARTS", |it| it.restarts.to_string()),
    ("LAST EXIT", |it| it.last_end.clone().unwrap_or_default()),
];

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a cluster if it doesn't exist, and wait until it is ready.
    #[command(after_help = "Example:\n  oprc sandbox up --prometheus")]
    Up {
        #[command(flatten)]
        name: Name,
        /// Kind of nodes.
        #[arg(long, value_enum, default_value_t)]
        node: Node,
        /// Number of nodes [default: 1].
        #[arg(long, value_name = "COUNT")]
        nodes: Option<u16>,
        /// Run Prometheus next to the cluster, and install the ServiceMonitor and PodMonitor CRDs.
        #[arg(long)]
        prometheus: bool,
        /// Install Knative Serving with Kourier.
        #[arg(long)]
        knative: bool,
        /// Let etcd acknowledge writes before they are synced to disk; for tests only.
        #[arg(long)]
        no_fsync: bool,
    },
    /// Delete a cluster and all its data.
    #[command(after_help = "Example:\n  oprc sandbox down")]
    Down {
        #[command(flatten)]
        name: Name,
    },
    /// List the sandbox clusters of the current user.
    #[command(after_help = "Example:\n  oprc sandbox list")]
    List {
        #[command(flatten)]
        show: OutputArgs,
    },
    /// Show the components of a cluster.
    #[command(after_help = "Example:\n  oprc sandbox status")]
    Status {
        #[command(flatten)]
        name: Name,
        #[command(flatten)]
        show: OutputArgs,
    },
    /// Print the path of the kubeconfig file.
    #[command(after_help = "Example:\n  export KUBECONFIG=$(oprc sandbox kubeconfig)")]
    Kubeconfig {
        #[command(flatten)]
        name: Name,
    },
    /// Run kubectl against a cluster.
    #[command(after_help = "Example:\n  oprc sandbox kubectl -- get pods --all-namespaces")]
    Kubectl {
        #[command(flatten)]
        name: Name,
        /// Arguments of kubectl.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Load an OCI image archive into the nodes of a cluster.
    #[command(after_help = "Example:\n  oprc sandbox load-image target/hello-fn.oci.tar")]
    LoadImage {
        #[command(flatten)]
        name: Name,
        /// OCI image archive.
        file: PathBuf,
    },
    /// Print the log of a component.
    #[command(after_help = "Example:\n  oprc sandbox logs supervisor")]
    Logs {
        #[command(flatten)]
        name: Name,
        /// Component as listed by `status`, or `supervisor`.
        component: String,
    },
    /// Create an OCI image archive from a static executable or a folder.
    #[command(
        after_help = "Examples:\n  oprc sandbox image --name example.org/fn:dev ./fn fn.oci.tar\n  oprc sandbox image --name example.org/fn:dev --root ./root /usr/bin/python3 fn.oci.tar -- /fn.py"
    )]
    Image {
        /// Image name with registry and tag.
        #[arg(long)]
        name: String,
        /// Folder with all files of the image; PROGRAM is then a path in the image.
        #[arg(long, value_name = "FOLDER")]
        root: Option<PathBuf>,
        /// Another file of the image: its path there, and the file to copy. May be repeated.
        #[arg(long, value_name = "PATH=FILE", value_parser = added_file)]
        add: Vec<(String, PathBuf)>,
        /// Static executable.
        program: PathBuf,
        /// Archive to write.
        archive: PathBuf,
        /// Arguments of the program.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Print the path of a program that the sandbox builds, and build it if it is missing.
    #[command(hide = true)]
    Program {
        #[arg(value_enum)]
        program: Program,
    },
    #[command(hide = true)]
    Supervise { name: String },
    #[command(hide = true)]
    HoldNode { folder: PathBuf },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Program {
    Etcd,
}

fn added_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((path, file)) if path.starts_with('/') && !path.ends_with('/') && !file.is_empty() => {
            Ok((path.to_owned(), file.into()))
        }
        _ => Err("expected PATH=FILE, where PATH is absolute".to_owned()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct Name {
    /// Name of the cluster.
    #[arg(long = "name", value_name = "NAME", default_value = DEFAULT_NAME)]
    cluster: String,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(crate) enum Node {
    /// Real nodes if this machine supports them, else simulated ones.
    #[default]
    Auto,
    /// Nodes with kubelet and containerd; needs root.
    Real,
    /// Simulated nodes: pods become ready without running containers.
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

pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Up { name, node, nodes, prometheus, knative, no_fsync } => {
            let options = Options { node: node.into(), nodes, prometheus, knative, no_fsync };
            let cluster = Cluster::up(&name.cluster, &options).await?;
            describe(cluster.spec(), &cluster)?;
        }
        Command::Down { name } => {
            Cluster::down(&name.cluster).await?;
            note(&format!("cluster {} deleted", name.cluster));
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
            return Err(error).context("running kubectl");
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
                let read = file.read(&mut part).context("reading the log")?;
                match part.get(..read) {
                    None | Some([]) => break,
                    Some(bytes) => print_bytes(bytes)?,
                }
            }
        }
        Command::Image { name, root, add, program, archive, arguments } => {
            let mut image = match root {
                Some(root) => Image::of_root(&name, &root, &program.to_string_lossy())?,
                None => {
                    ensure!(
                        program.is_file(),
                        "{} is not a file; give the path of the executable to run in the image",
                        program.display()
                    );
                    Image::of_program(&name, &program)
                }
            };
            image.entrypoint.extend(arguments);
            image.files.extend(add);
            image.write(&archive)?;
        }
        Command::Program { program: Program::Etcd } => {
            print(&format!("{}\n", oprc_sandbox::etcd_program()?.display()))?;
        }
        Command::Supervise { name } => supervisor::supervise(&name).await?,
        Command::HoldNode { folder } => node::hold(&folder).await?,
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(spec: &Spec, cluster: &Cluster) -> Result<()> {
    let (name, nodes, kind) = (&spec.name, spec.nodes, api_name(&spec.kind));
    let mut text = format!("cluster {name} is ready ({nodes} {kind} nodes)\n");
    let _ = writeln!(text, "  API         {}", spec.api_url());
    if let Some(url) = spec.prometheus_url() {
        let _ = writeln!(text, "  Prometheus  {url}");
    }
    let _ = writeln!(text, "  kubeconfig  {}", cluster.kubeconfig().display());
    print(&text)
}

#[derive(Serialize)]
struct ListedCluster {
    name: String,
    /// `None` if the specification of the cluster can't be read.
    node: Option<NodeKind>,
    nodes: Option<u16>,
    state: &'static str,
}

async fn list(show: &OutputArgs) -> Result<()> {
    let mut all = Vec::new();
    for name in Spec::names()? {
        let Ok(cluster) = Cluster::open(&name) else {
            all.push(ListedCluster { name, node: None, nodes: None, state: "broken" });
            continue;
        };
        let (node, nodes) = (Some(cluster.spec().kind), Some(cluster.spec().nodes));
        let state =
            if cluster.supervisor().status().await.is_ok() { "running" } else { "not running" };
        all.push(ListedCluster { name, node, nodes, state });
    }
    show.list(
        &all,
        |it| it.name.clone(),
        &[
            ("NAME", |it| it.name.clone()),
            ("NODE", |it| api_name(&it.node)),
            ("NODES", |it| it.nodes.map(|nodes| nodes.to_string()).unwrap_or_default()),
            ("STATE", |it| it.state.to_owned()),
        ],
        &[],
    )
}

/// Fails unless all components are running.
async fn status(cluster: &Cluster, show: &OutputArgs) -> Result<ExitCode> {
    let components = cluster.supervisor().status().await?;
    show.list(&components, |it| it.name.clone(), COMPONENT_COLUMNS, &[])?;
    let all_run = components.iter().all(|component| component.state == State::Running);
    Ok(if all_run { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::table;

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
    fn renders_components_as_rows_and_json() {
        let since = SystemTime::now() - Duration::from_hours(3) - Duration::from_secs(5);
        let since = since.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let text = table(&[ComponentStatus { since, ..etcd() }], COMPONENT_COLUMNS, false);
        assert_eq!(text, "etcd   running   7   3h   0   -\n");
        let document = serde_json::to_value(etcd()).unwrap();
        assert_eq!(document["state"], "running");
        assert_eq!(document["name"], "etcd");
    }

    #[test]
    fn lists_clusters_that_cannot_be_read() {
        let broken =
            ListedCluster { name: "a".to_owned(), node: None, nodes: None, state: "broken" };
        let json = serde_json::to_string(&broken).unwrap();
        assert_eq!(json, r#"{"name":"a","node":null,"nodes":null,"state":"broken"}"#);
    }
}
