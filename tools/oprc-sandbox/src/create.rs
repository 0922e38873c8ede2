//! Creates the files of a new cluster: specification, programs, certificates and configurations.

use std::{fs, process::Command};

use serde_json::json;

use crate::{
    Error, Result, cache, cgroup, command,
    kubeconfig::kubeconfig,
    layout::Layout,
    network, node, paths,
    pki::{self, Request},
    programs, progress, prometheus,
    spec::{self, NodeChoice, NodeKind, Options, Ports, Programs, Spec},
};

const MAX_SIMULATED_NODES: u16 = 1000;

pub(crate) fn create(name: &str, options: &Options, owner: Option<String>) -> Result<Spec> {
    let kind = choose_kind(options)?;
    let nodes = options.nodes.unwrap_or(1);
    let max = if kind == NodeKind::Real { network::MAX_NODES.into() } else { MAX_SIMULATED_NODES };
    if nodes == 0 || nodes > max {
        return Err(Error::BadOption(format!(
            "--nodes {nodes}: must be 1 to {max} for this kind of node"
        )));
    }
    let programs = provide_programs(kind, options.prometheus, options.knative)?;
    let clusters = paths::clusters()?;
    // Clusters created at the same time must not take the same slot.
    let _lock = cache::wait_for_lock(&clusters.join("slots.lock"), "the list of clusters")?;
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
    let layout = Layout::of(&spec)?;
    write_files(&spec, &layout)?;
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
            progress::note(&format!(
                "using simulated nodes, because real nodes are not possible: {reason}"
            ));
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
    if !cfg!(target_os = "linux") {
        return Ok(Some("this is not Linux".to_owned()));
    }
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
        return Ok(Some(format!(
            "nodes hide {}. Set XDG_STATE_HOME to another folder",
            clusters.display()
        )));
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
    let core = programs::Core::provide(&needed)?;
    let mut found = Programs {
        etcd: core.path("etcd"),
        kube_apiserver: core.path("kube-apiserver"),
        kube_controller_manager: core.path("kube-controller-manager"),
        kube_scheduler: core.path("kube-scheduler"),
        kubectl: core.path("kubectl"),
        kwok: core.path("kwok"),
        kubelet: core.path("kubelet"),
        kube_proxy: core.path("kube-proxy"),
        coredns: core.path("coredns"),
        metrics_server: core.path("metrics-server"),
        pause: core.path("pause"),
        ..Programs::default()
    };
    if kind == NodeKind::Real {
        let runtime = programs::Runtime::provide()?;
        (found.containers, found.runc, found.cni) = (runtime.bin(), runtime.runc(), runtime.cni());
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
    for folder in
        [layout.0.clone(), layout.0.join("pki"), layout.0.join("logs"), layout.0.join("data")]
    {
        let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        created.map_err(Error::io(format!("creating {}", folder.display())))?;
    }
    write_certificates(spec, layout)?;
    write_kubeconfigs(spec, layout)?;
    let stages = include_str!("../manifests/kwok-stages.yaml");
    spec::write_private(&layout.config("kwok-stages.yaml"), stages.as_bytes())?;
    let scheduler = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": layout.kubeconfig("scheduler"), "qps": 500, "burst": 1000},
        "leaderElection": {"leaderElect": false},
    });
    spec::write_private(&layout.config("scheduler.json"), scheduler.to_string().as_bytes())?;
    if spec.prometheus {
        let config = prometheus::config(layout).to_string();
        spec::write_private(&layout.config("prometheus.json"), config.as_bytes())?;
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
    let service = if spec.kind == NodeKind::Real {
        spec.addresses().service(1).to_string()
    } else {
        "198.19.0.1".into()
    };
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
        pki.create(authority, name, &Request { common_name: name, group: None, names }).map(drop)
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
    let masters = Some("system:masters");
    let mut users = vec![
        ("admin".to_owned(), "oprc-admin".to_owned(), masters),
        ("apiserver-kubelet".to_owned(), "kube-apiserver".to_owned(), masters),
        ("controller-manager".to_owned(), "system:kube-controller-manager".to_owned(), None),
        ("scheduler".to_owned(), "system:kube-scheduler".to_owned(), None),
        ("kube-proxy".to_owned(), "system:kube-proxy".to_owned(), None),
        ("prometheus".to_owned(), prometheus::USER.to_owned(), None),
    ];
    if spec.kind == NodeKind::Simulated {
        users.push(("kwok".to_owned(), "oprc-kwok".to_owned(), masters));
    }
    for number in node::numbers(spec) {
        let user = format!("system:node:node-{number}");
        users.push((node::on_node("kubelet", number), user, Some("system:nodes")));
    }
    let authority = fs::read_to_string(pki.certificate(pki::CLUSTER))
        .map_err(Error::io("reading a certificate"))?;
    for (name, user, group) in &users {
        let identity = pki.create(
            pki::CLUSTER,
            name,
            &Request { common_name: user, group: *group, names: &[] },
        )?;
        let config = kubeconfig(&spec.name, &spec.api_url(), &authority, &identity);
        spec::write_private(&layout.kubeconfig(name), config.to_string().as_bytes())?;
    }
    Ok(())
}
