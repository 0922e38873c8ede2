//! Makes the files of a new cluster: decides what it is, fetches its programs, writes its
//! certificates and configurations.

use std::{fs, process::Command};

use serde_json::json;

use crate::{
    Error, Result, cache, cgroups, command,
    components::Layout,
    kubeconfig::kubeconfig,
    network, node, paths,
    pki::{self, Request},
    programs, progress, prometheus,
    spec::{self, NodeChoice, NodeKind, Options, Ports, Programs, Spec},
};

/// Nodes that a simulated cluster can have.
const SIMULATED_NODES: u16 = 1000;

/// Decides what a new cluster is, fetches its programs and writes all of its files.
pub(crate) fn make(name: &str, options: &Options, owner: Option<String>) -> Result<Spec> {
    let kind = choose_kind(options)?;
    let nodes = options.nodes.unwrap_or(1);
    let most = if kind == NodeKind::Real { network::NODES.into() } else { SIMULATED_NODES };
    if nodes == 0 || nodes > most {
        return Err(Error::BadOption(format!(
            "--nodes {nodes}: such a cluster has 1 to {most} nodes"
        )));
    }
    let programs = provide(kind, options.prometheus, options.knative)?;
    let clusters = paths::clusters()?;
    // Two clusters that are made at once must not take the same slot.
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
    // The last file: a folder without it is what an interrupted command left.
    spec.save()?;
    Ok(spec)
}

/// Finds the programs of a cluster again: they may have been deleted since, or damaged.
pub(crate) fn refresh(spec: &mut Spec) -> Result<()> {
    spec.programs = provide(spec.kind, spec.prometheus, spec.knative)?;
    if spec.kind == NodeKind::Real {
        node::write_configs(spec, &Layout::of(spec)?)?;
    }
    spec.save()
}

fn choose_kind(options: &Options) -> Result<NodeKind> {
    let obstacle = if options.node == NodeChoice::Simulated { None } else { why_not_real()? };
    let kind = match (options.node, obstacle) {
        (NodeChoice::Simulated, _) => NodeKind::Simulated,
        (_, None) => NodeKind::Real,
        (NodeChoice::Real, Some(reason)) => return Err(Error::NoRealNode { reason }),
        (NodeChoice::Auto, Some(reason)) => {
            progress::note(&format!("simulated nodes, for there can be no real one: {reason}"));
            NodeKind::Simulated
        }
    };
    if options.knative && kind == NodeKind::Simulated {
        return Err(Error::BadOption(
            "--knative needs a real node (its webhooks must answer): use --node real as root, or leave it out".to_owned(),
        ));
    }
    Ok(kind)
}

/// What keeps this machine from having a real node.
fn why_not_real() -> Result<Option<String>> {
    if !cfg!(target_os = "linux") {
        return Ok(Some("this isn't Linux".to_owned()));
    }
    if !rustix::process::geteuid().is_root() {
        return Ok(Some("that takes root (try: sudo env \"PATH=$PATH\" …)".to_owned()));
    }
    for (tool, package) in [
        ("apt-get", "containerd comes from Debian's packages"),
        ("unshare", "package util-linux"),
        ("nsenter", "package util-linux"),
    ] {
        if command::find(tool).is_none() {
            return Ok(Some(format!("there is no {tool} ({package})")));
        }
    }
    let clusters = paths::clusters()?;
    if ["/run", "/var/lib", "/var/log"].iter().any(|hidden| clusters.starts_with(hidden)) {
        return Ok(Some(format!(
            "{} is in a folder that a node has for itself: set XDG_STATE_HOME to another one",
            clusters.display()
        )));
    }
    // The mounts that a node makes, tried in namespaces that are gone at once.
    let trial =
        tempfile::tempdir_in(&clusters).map_err(Error::io("making a folder for a trial"))?;
    let layers = node::layers(trial.path());
    node::make_layers(trial.path())?;
    let mut unshare = Command::new("unshare");
    unshare.args(["--net", "--mount", "--pid", "--fork", "--mount-proc"]);
    unshare.args(["mount", "-t", "overlay", "overlay", "/var/lib", "-o", &layers]);
    // Where nobody has mounted anything before, it would make a folder in /run for its notes.
    unshare.env("LIBMOUNT_UTAB", trial.path().join("utab"));
    if let Err(error) = command::run("Making namespaces and mounts", &mut unshare) {
        return Ok(Some(error.to_string()));
    }
    Ok(cgroups::why_not())
}

/// Finds or makes all programs that a cluster needs, and says so where that takes time.
fn provide(kind: NodeKind, prometheus: bool, knative: bool) -> Result<Programs> {
    if command::find("setpriv").is_none() {
        return Err(Error::Missing {
            tool: "setpriv".to_owned(),
            purpose: "to start processes that end with their supervisor".to_owned(),
            reason: "it isn't on the PATH".to_owned(),
            remedy: "Install the package util-linux".to_owned(),
        });
    }
    let mut needed =
        vec!["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"];
    match kind {
        NodeKind::Real => {
            let tools = [("ip", "iproute2"), ("iptables", "iptables"), ("conntrack", "conntrack")];
            programs::install_missing(&tools, "by a real node")?;
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

/// Writes certificates, kubeconfigs and configurations.
fn write_files(spec: &Spec, layout: &Layout) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    for folder in
        [layout.0.clone(), layout.0.join("pki"), layout.0.join("logs"), layout.0.join("data")]
    {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(Error::io(format!("making {}", folder.display())))?;
    }
    let pki = layout.pki();
    for authority in [pki::CLUSTER, pki::ETCD, pki::FRONT] {
        pki.make_authority(authority)?;
    }
    pki.make_token_key("tokens")?;
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
        pki.make(authority, name, &Request { common_name: name, group: None, names }).map(drop)
    };
    serve("apiserver", &api_names, pki::CLUSTER)?;
    serve("etcd", &["localhost", "127.0.0.1"], pki::ETCD)?;
    serve("etcd-client", &[], pki::ETCD)?;
    serve("front-proxy", &[], pki::FRONT)?;

    let masters = Some("system:masters");
    let mut users = vec![
        ("admin".to_owned(), "oprc-admin".to_owned(), masters),
        ("apiserver-kubelet".to_owned(), "kube-apiserver".to_owned(), masters),
        ("controller-manager".to_owned(), "system:kube-controller-manager".to_owned(), None),
        ("scheduler".to_owned(), "system:kube-scheduler".to_owned(), None),
        ("kube-proxy".to_owned(), "system:kube-proxy".to_owned(), None),
        ("prometheus".to_owned(), prometheus::USER.to_owned(), None),
    ];
    match spec.kind {
        NodeKind::Simulated => users.push(("kwok".to_owned(), "oprc-kwok".to_owned(), masters)),
        NodeKind::Real => {
            for number in 0..u8::try_from(spec.nodes).unwrap_or_default() {
                let name = format!("node-{number}");
                let address = spec.addresses().node(number).to_string();
                serve(&node::on_node("kubelet-server", number), &[&name, &address], pki::CLUSTER)?;
                let user = format!("system:node:{name}");
                users.push((node::on_node("kubelet", number), user, Some("system:nodes")));
            }
        }
    }
    let authority = fs::read_to_string(pki.certificate(pki::CLUSTER))
        .map_err(Error::io("reading a certificate"))?;
    for (name, user, group) in &users {
        let identity = pki.make(
            pki::CLUSTER,
            name,
            &Request { common_name: user, group: *group, names: &[] },
        )?;
        let config = kubeconfig(&spec.name, &spec.api_url(), &authority, &identity);
        spec::write_private(&layout.kubeconfig(name), config.to_string().as_bytes())?;
    }
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
