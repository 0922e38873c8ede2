//! Creates the files of a new cluster: specification, programs, certificates and configurations.

use std::{fs, process::Command};

use serde_json::json;

use crate::{
    Error, Result, cgroup, command, files,
    kubeconfig::kubeconfig,
    layout::Layout,
    network, node, paths, pki, programs, progress, prometheus,
    spec::{self, NodeChoice, NodeKind, Options, Ports, Programs, Spec},
};

const MAX_SIMULATED_NODES: u16 = 1000;

pub(crate) fn create(name: &str, options: &Options, owner: Option<String>) -> Result<Spec> {
    let kind = choose_kind(options)?;
    let nodes = options.nodes.unwrap_or(1);
    let max = if kind == NodeKind::Real { network::MAX_NODES.into() } else { MAX_SIMULATED_NODES };
    if nodes == 0 || nodes > max {
        let problem = format!("--nodes {nodes}: must be 1 to {max} for this kind of node");
        return Err(Error::BadOption(problem));
    }
    let programs = provide_programs(kind, options.prometheus, options.knative)?;
    // Clusters created at the same time must not take the same slot.
    let slots = paths::clusters()?.join("slots.lock");
    let _lock = files::wait_for_lock(&slots, "the list of clusters")?;
    let spec = Spec {
        name: name.to_owned(),
        kind,
        nodes,
        prometheus: options.prometheus,
        knative: options.knative,
        fsync: !options.no_fsync,
        slot: if kind == NodeKind::Real { spec::free_slot()? } else { 0 },
        ports: Ports::choose(kind)?,
        programs,
        complete: false,
        owner,
    };
    write_files(&spec, &Layout::of(&spec)?)?;
    // Written last: a folder without this file belongs to an interrupted command.
    spec.save()?;
    Ok(spec)
}

/// Provides the programs again, because they may have been deleted from the cache or damaged.
pub(crate) fn refresh_programs(spec: &mut Spec) -> Result<()> {
    spec.programs = provide_programs(spec.kind, spec.prometheus, spec.knative)?;
    if spec.kind == NodeKind::Real {
        node::write_configs(spec, &Layout::of(spec)?)?;
    }
    spec.save()
}

fn choose_kind(options: &Options) -> Result<NodeKind> {
    let obstacle = if options.node == NodeChoice::Simulated { None } else { real_node_obstacle()? };
    let kind = match (options.node, obstacle) {
        (NodeChoice::Simulated, _) => NodeKind::Simulated,
        (_, None) => NodeKind::Real,
        (NodeChoice::Real, Some(reason)) => return Err(Error::NoRealNode { reason }),
        (NodeChoice::Auto, Some(reason)) => {
            let fallback = "using simulated nodes, because real nodes are not possible";
            progress::note(&format!("{fallback}: {reason}"));
            NodeKind::Simulated
        }
    };
    if options.knative && kind == NodeKind::Simulated {
        return Err(Error::BadOption(
            "--knative needs real nodes, because its webhooks must run. Use --node real as root, or omit --knative".to_owned(),
        ));
    }
    Ok(kind)
}

/// Why this machine can't run real nodes, if it can't.
fn real_node_obstacle() -> Result<Option<String>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(Some("they require root (try: sudo env \"PATH=$PATH\" …)".to_owned()));
    }
    for (tool, package) in [
        ("apt-get", "containerd is unpacked from Debian packages"),
        ("unshare", "package util-linux"),
        ("nsenter", "package util-linux"),
    ] {
        if command::find(tool).is_none() {
            return Ok(Some(format!("{tool} is not installed ({package})")));
        }
    }
    let clusters = paths::clusters()?;
    if ["/run", "/var/lib", "/var/log"].iter().any(|hidden| clusters.starts_with(hidden)) {
        let hidden = clusters.display();
        return Ok(Some(format!("nodes hide {hidden}. Set XDG_STATE_HOME to another folder")));
    }
    // Tries the mounts of a node in temporary namespaces.
    let trial =
        tempfile::tempdir_in(&clusters).map_err(Error::io("creating a temporary folder"))?;
    let layers = node::overlay_options(trial.path());
    node::create_overlay_folders(trial.path())?;
    let mut unshare = Command::new("unshare");
    unshare.args(["--net", "--mount", "--pid", "--fork", "--mount-proc"]);
    unshare.args(["mount", "-t", "overlay", "overlay", "/var/lib", "-o", &layers]);
    // Otherwise mount may create /run/mount on the machine.
    unshare.env("LIBMOUNT_UTAB", trial.path().join("utab"));
    if let Err(error) = command::run("Creating namespaces and mounts", &mut unshare) {
        return Ok(Some(error.to_string()));
    }
    Ok(cgroup::obstacle())
}

fn provide_programs(kind: NodeKind, prometheus: bool, knative: bool) -> Result<Programs> {
    if command::find("setpriv").is_none() {
        return Err(Error::Missing {
            tool: "setpriv".to_owned(),
            purpose: "to start processes that exit with their supervisor".to_owned(),
            reason: "it is not on the PATH".to_owned(),
            remedy: "Install the package util-linux".to_owned(),
        });
    }
    let mut needed =
        vec!["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"];
    match kind {
        NodeKind::Real => {
            let tools = [("ip", "iproute2"), ("iptables", "iptables"), ("conntrack", "conntrack")];
            programs::install_missing(&tools, "by real nodes")?;
            needed.extend(["kubelet", "kube-proxy", "coredns", "metrics-server", "pause"]);
        }
        NodeKind::Simulated => needed.push("kwok"),
    }
    let core = programs::core(&needed)?;
    let mut found = Programs {
        etcd: core("etcd"),
        kube_apiserver: core("kube-apiserver"),
        kube_controller_manager: core("kube-controller-manager"),
        kube_scheduler: core("kube-scheduler"),
        kubectl: core("kubectl"),
        kwok: core("kwok"),
        kubelet: core("kubelet"),
        kube_proxy: core("kube-proxy"),
        coredns: core("coredns"),
        metrics_server: core("metrics-server"),
        pause: core("pause"),
        ..Programs::default()
    };
    if kind == NodeKind::Real {
        let runtime = programs::container_runtime()?;
        found.containers = runtime.join("usr/bin");
        found.runc = runtime.join("usr/sbin/runc");
        found.cni = runtime.join("usr/lib/cni");
    }
    if prometheus {
        found.prometheus = programs::prometheus()?;
        programs::monitor_definitions()?;
    }
    if knative {
        programs::Knative::provide()?;
    }
    Ok(found)
}

fn write_files(spec: &Spec, layout: &Layout) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    for folder in ["", "pki", "logs", "data"].map(|name| layout.0.join(name)) {
        let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        created.map_err(Error::path("creating", &folder))?;
    }
    write_certificates(spec, layout)?;
    write_kubeconfigs(spec, layout)?;
    let write = |name: &str, text: &str| files::write_private(&layout.config(name), text);
    write("kwok-stages.yaml", include_str!("../manifests/kwok-stages.yaml"))?;
    let scheduler = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": layout.kubeconfig("scheduler"), "qps": 500, "burst": 1000},
        "leaderElection": {"leaderElect": false},
    });
    write("scheduler.json", &scheduler.to_string())?;
    if spec.prometheus {
        write("prometheus.json", &prometheus::config(layout).to_string())?;
    }
    if spec.kind == NodeKind::Real { node::write_configs(spec, layout) } else { Ok(()) }
}

/// Writes the CAs and the certificates of servers; those of clients are part of their kubeconfigs.
fn write_certificates(spec: &Spec, layout: &Layout) -> Result<()> {
    let pki = layout.pki();
    for authority in [pki::CLUSTER, pki::ETCD, pki::FRONT] {
        pki.create_authority(authority)?;
    }
    pki.create_token_key("tokens")?;
    let host = spec.host().to_string();
    // A cluster with simulated nodes has the services of the first slot.
    let service = spec.addresses().service(1).to_string();
    let api_names = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "127.0.0.1",
        &host,
        &service,
    ];
    let serve = |name: &str, names: &[&str], authority: &str| {
        pki.store(name, &pki.issue(authority, name, None, names)?)
    };
    serve("apiserver", &api_names, pki::CLUSTER)?;
    serve("etcd", &["localhost", "127.0.0.1"], pki::ETCD)?;
    serve("etcd-client", &[], pki::ETCD)?;
    serve("front-proxy", &[], pki::FRONT)?;
    for number in node::numbers(spec) {
        let name = format!("node-{number}");
        let address = spec.addresses().node(number).to_string();
        serve(&node::on_node("kubelet-server", number), &[&name, &address], pki::CLUSTER)?;
    }
    Ok(())
}

/// Writes a kubeconfig with a client certificate for each user of the API.
fn write_kubeconfigs(spec: &Spec, layout: &Layout) -> Result<()> {
    let pki = layout.pki();
    let authority = pki.authority()?;
    let write = |name: &str, user: &str, group: Option<&str>| {
        let identity = pki.client(user, group)?;
        pki.store(name, &identity)?;
        let config = kubeconfig(&spec.name, &spec.api_url(), &authority, &identity);
        files::write_private(&layout.kubeconfig(name), config.to_string())
    };
    let masters = Some("system:masters");
    write("admin", "oprc-admin", masters)?;
    write("apiserver-kubelet", "kube-apiserver", masters)?;
    write("controller-manager", "system:kube-controller-manager", None)?;
    write("scheduler", "system:kube-scheduler", None)?;
    write("kube-proxy", "system:kube-proxy", None)?;
    write("prometheus", prometheus::USER, None)?;
    if spec.kind == NodeKind::Simulated {
        write("kwok", "oprc-kwok", masters)?;
    }
    for number in node::numbers(spec) {
        let user = format!("system:node:node-{number}");
        write(&node::on_node("kubelet", number), &user, Some("system:nodes"))?;
    }
    Ok(())
}
