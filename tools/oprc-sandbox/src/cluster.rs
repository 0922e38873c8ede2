//! Makes, finds and ends clusters.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use kube::{
    Client,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;

use crate::{
    Error, Result, addons, apply, cache, cgroups, command,
    components::{Component, Layout, components},
    kubeconfig::kubeconfig,
    loader::Loader,
    network, node, paths,
    pki::{self, Identity, Pki, Request},
    programs, progress, prometheus,
    spec::{self, NodeChoice, NodeKind, Options, Ports, Programs, Spec},
    supervisor::{self, ComponentStatus, Supervisor},
};

const API_READY: Duration = Duration::from_secs(90);
/// Nodes that a simulated cluster can have.
const SIMULATED_NODES: u16 = 1000;

/// A cluster of this machine.
#[derive(Debug, Clone)]
pub struct Cluster {
    spec: Spec,
    layout: Layout,
}

impl Cluster {
    /// Makes a cluster, or finds the one of that name, and returns when it is ready.
    pub async fn up(name: &str, options: &Options) -> Result<Self> {
        let folder = Spec::folder_of(name)?;
        let clusters = paths::clusters()?;
        fs::create_dir_all(&clusters)
            .map_err(Error::io(format!("making {}", clusters.display())))?;
        let _lock = cache::wait_for_lock(
            &clusters.join(format!("{name}.lock")),
            &format!("cluster '{name}'"),
        )?;
        let mut cluster = match Spec::load(name)? {
            Some(spec) => {
                if let Some(differences) = spec.differences(options) {
                    return Err(Error::OptionsDiffer {
                        name: name.to_owned(),
                        differences,
                    });
                }
                Self {
                    layout: Layout::of(&spec)?,
                    spec,
                }
            }
            None => {
                cache::remove(&folder)?;
                let options = options.clone();
                let name = name.to_owned();
                command::off_thread(move || make(&name, &options)).await?
            }
        };
        let started = !cluster.supervisor().is_alive().await;
        if started {
            cluster.start()?;
        }
        let client = cluster.client().await?;
        let incomplete = started || !cluster.spec.complete;
        let ready = async {
            let api = apply::api_ready(&client, API_READY);
            if incomplete {
                // Images can go to the nodes while the API server is still starting.
                let (loader, ()) = futures::try_join!(addons::load(&cluster.spec), api)?;
                addons::install(&cluster.spec, &cluster.layout, &client, loader.as_ref()).await
            } else {
                api.await
            }
        };
        if let Err(error) = ready.await {
            return Err(cluster.explain(error).await);
        }
        if !cluster.spec.complete {
            cluster.spec.complete = true;
            cluster.spec.save()?;
        }
        Ok(cluster)
    }

    /// The cluster of that name.
    pub fn open(name: &str) -> Result<Self> {
        let Some(spec) = Spec::load(name)? else {
            let names = Spec::names()?;
            let known = if names.is_empty() {
                "there are none".to_owned()
            } else {
                format!("there are: {}", names.join(", "))
            };
            return Err(Error::UnknownCluster {
                name: name.to_owned(),
                known,
            });
        };
        Ok(Self {
            layout: Layout::of(&spec)?,
            spec,
        })
    }

    /// Ends a cluster and takes away all that it left on this machine, whatever state it is in.
    pub async fn down(name: &str) -> Result<()> {
        let folder = Spec::folder_of(name)?;
        if !folder.exists() {
            return Self::open(name).map(drop);
        }
        let lock = folder.with_extension("lock");
        let _lock = cache::wait_for_lock(&lock, &format!("cluster '{name}'"))?;
        let running = Supervisor {
            cluster: name.to_owned(),
            folder: folder.clone(),
        };
        running.shut_down().await?;
        // What stands in the way of reading the cluster must not keep it from being removed.
        if let Ok(Some(spec)) = Spec::load(name) {
            sweep(&spec)?;
        }
        remove_folder(&folder)?;
        let _ = fs::remove_file(lock);
        Ok(())
    }

    fn start(&self) -> Result<()> {
        sweep(&self.spec)?;
        let ports = &self.spec.ports;
        let own = [("etcd", ports.etcd), ("etcd's peers", ports.etcd_peer)];
        let shared = [("the API", ports.api), ("Prometheus", ports.prometheus)];
        let shared = shared
            .into_iter()
            .filter(|_| self.spec.kind == NodeKind::Simulated);
        for (role, port) in own.into_iter().chain(shared) {
            if !network::is_free(std::net::Ipv4Addr::LOCALHOST, port) {
                return Err(Error::PortTaken {
                    cluster: self.spec.name.clone(),
                    role: role.to_owned(),
                    port,
                });
            }
        }
        supervisor::spawn(&self.spec)
    }

    /// Adds to an error what the components' own words tell about its cause.
    async fn explain(&self, error: Error) -> Error {
        let Error::Timeout { what, seconds, .. } = error else {
            return error;
        };
        let components = self.supervisor().status().await.unwrap_or_default();
        let failing = components.iter().find(|component| component.restarts > 0);
        let detail = match failing {
            Some(component) => {
                let log = fs::read_to_string(self.layout.log(&component.name)).unwrap_or_default();
                let lines: Vec<_> = log.lines().rev().take(5).collect();
                let tail: Vec<_> = lines.into_iter().rev().collect();
                format!(
                    "; {} keeps ending. Its last words:\n{}",
                    component.name,
                    tail.join("\n")
                )
            }
            None if components.is_empty() => {
                let log = fs::read_to_string(self.layout.log("supervisor")).unwrap_or_default();
                format!("; the supervisor doesn't answer. Its last words:\n{log}")
            }
            None => format!(
                "; look at: oprc sandbox logs COMPONENT --name {}",
                self.spec.name
            ),
        };
        Error::Timeout {
            what,
            seconds,
            detail,
        }
    }

    /// What the cluster was made as.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Its certificates.
    pub fn pki(&self) -> Pki {
        self.layout.pki()
    }

    /// The certificate of the authority that signed its servers and clients, as PEM.
    pub fn authority(&self) -> Result<String> {
        let file = self.pki().certificate(pki::CLUSTER);
        fs::read_to_string(&file).map_err(Error::io(format!("reading {}", file.display())))
    }

    /// Its supervisor, which starts and stops components.
    pub fn supervisor(&self) -> Supervisor {
        Supervisor {
            cluster: self.spec.name.clone(),
            folder: self.layout.0.clone(),
        }
    }

    /// How its components are.
    pub async fn status(&self) -> Result<Vec<ComponentStatus>> {
        self.supervisor().status().await
    }

    /// The kubeconfig file of its administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.layout.kubeconfig("admin")
    }

    /// A client that may do everything.
    pub async fn client(&self) -> Result<Client> {
        let file = self.kubeconfig();
        let config = Kubeconfig::read_from(&file).map_err(|error| {
            Error::failed(format!("Reading {}", file.display()), error.to_string())
        })?;
        client_of(config).await
    }

    /// A client with an identity of its own, to an address that stands for the API server.
    pub async fn client_at(&self, url: &str, identity: &Identity) -> Result<Client> {
        let config = kubeconfig(&self.spec.name, url, &self.authority()?, identity);
        let config = serde_json::from_value(config)
            .map_err(|error| Error::failed("Making a kubeconfig", error.to_string()))?;
        client_of(config).await
    }

    /// `kubectl` for this cluster.
    pub fn kubectl(&self) -> Command {
        let mut kubectl = Command::new(&self.spec.programs.kubectl);
        kubectl.arg0_kubectl().env("KUBECONFIG", self.kubeconfig());
        kubectl
    }

    /// Loads an image archive into all nodes and gives the names of the images in it.
    pub async fn load_image(&self, archive: &Path) -> Result<Vec<String>> {
        if self.spec.kind == NodeKind::Simulated {
            let images = crate::image::inspect(archive)?;
            progress::say("simulated nodes run no containers: nothing to load");
            return Ok(images.into_iter().map(|image| image.name).collect());
        }
        let archive = fs::canonicalize(archive).unwrap_or_else(|_| archive.to_owned());
        crate::image::inspect(&archive)?;
        Loader::of(&self.spec).await?.load(&archive).await
    }

    /// The log file of a component, or of the supervisor.
    pub fn log(&self, component: &str) -> Result<PathBuf> {
        let mut known: Vec<_> = components(&self.spec, &self.layout)
            .into_iter()
            .map(|one: Component| one.name)
            .collect();
        known.push("supervisor".to_owned());
        if known.iter().any(|name| name == component) {
            return Ok(self.layout.log(component));
        }
        let (cluster, component) = (self.spec.name.clone(), component.to_owned());
        Err(Error::UnknownComponent {
            cluster,
            component,
            known: known.join(", "),
        })
    }
}

trait KubectlName {
    fn arg0_kubectl(&mut self) -> &mut Self;
}

impl KubectlName for Command {
    /// The program knows by its name what it is; a link's target wouldn't tell.
    fn arg0_kubectl(&mut self) -> &mut Self {
        std::os::unix::process::CommandExt::arg0(self, "kubectl")
    }
}

async fn client_of(config: Kubeconfig) -> Result<Client> {
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(config, &options).await;
    let config =
        config.map_err(|error| Error::failed("Reading a kubeconfig", error.to_string()))?;
    Client::try_from(config).map_err(Error::kube("connecting to the cluster"))
}

/// Takes away what a cluster leaves on this machine when its processes have ended.
fn sweep(spec: &Spec) -> Result<()> {
    if spec.kind == NodeKind::Real {
        spec.addresses().remove_bridge()?;
        cgroups::remove(spec)?;
    }
    Ok(())
}

/// Deletes a cluster's folder; a process that is just dying may still write to it.
fn remove_folder(folder: &Path) -> Result<()> {
    let mut result = Ok(());
    for _ in 0..20 {
        result = cache::remove(folder);
        if result.is_ok() {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    result
}

/// Decides what a new cluster is, fetches its programs and writes all of its files.
fn make(name: &str, options: &Options) -> Result<Cluster> {
    let kind = choose_kind(options)?;
    let nodes = options.nodes.unwrap_or(1);
    let most = if kind == NodeKind::Real {
        network::NODES.into()
    } else {
        SIMULATED_NODES
    };
    if nodes == 0 || nodes > most {
        return Err(Error::BadOption(format!(
            "--nodes {nodes}: such a cluster has 1 to {most} nodes"
        )));
    }
    let programs = provide(kind, options)?;
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
        slot: if kind == NodeKind::Real {
            spec::free_slot()?
        } else {
            0
        },
        ports: Ports::choose(kind)?,
        programs,
        complete: false,
    };
    let layout = Layout::of(&spec)?;
    write_files(&spec, &layout)?;
    // The last file: a folder without it is what an interrupted command left.
    spec.save()?;
    Ok(Cluster { spec, layout })
}

fn choose_kind(options: &Options) -> Result<NodeKind> {
    let obstacle = why_not_real();
    let kind = match (options.node, obstacle) {
        (NodeChoice::Simulated, _) => NodeKind::Simulated,
        (_, None) => NodeKind::Real,
        (NodeChoice::Real, Some(reason)) => return Err(Error::NoRealNode { reason }),
        (NodeChoice::Auto, Some(reason)) => {
            progress::say(&format!(
                "simulated nodes, for there can be no real one: {reason}"
            ));
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
fn why_not_real() -> Option<String> {
    if !cfg!(target_os = "linux") {
        return Some("this isn't Linux".to_owned());
    }
    if !rustix::process::geteuid().is_root() {
        return Some("that takes root (try: sudo -E)".to_owned());
    }
    if command::find("apt-get").is_none() {
        return Some("containerd comes from Debian's packages, and there is no apt-get".to_owned());
    }
    let missing = ["unshare", "nsenter", "setpriv"]
        .iter()
        .find(|tool| command::find(tool).is_none());
    if let Some(tool) = missing {
        return Some(format!("there is no {tool} (package util-linux)"));
    }
    let probe = [
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--mount-proc",
        "true",
    ];
    if command::run("Making namespaces", Command::new("unshare").args(probe)).is_err() {
        return Some("this process may not make namespaces".to_owned());
    }
    cgroups::why_not()
}

/// Finds or makes all programs that a cluster needs, and says so where that takes time.
fn provide(kind: NodeKind, options: &Options) -> Result<Programs> {
    let mut needed = vec![
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubectl",
    ];
    match kind {
        NodeKind::Real => {
            let tools = [
                ("ip", "iproute2"),
                ("iptables", "iptables"),
                ("conntrack", "conntrack"),
            ];
            programs::install_missing(&tools, "by a real node")?;
            needed.extend([
                "kubelet",
                "kube-proxy",
                "coredns",
                "metrics-server",
                "pause",
            ]);
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
        kwok_stages: core.stages(),
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
    if options.prometheus {
        found.prometheus = programs::prometheus()?;
        programs::monitor_definitions()?;
    }
    if options.knative {
        programs::Knative::provide()?;
    }
    Ok(found)
}

/// Writes certificates, kubeconfigs and configurations.
fn write_files(spec: &Spec, layout: &Layout) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    for folder in [
        layout.0.clone(),
        layout.0.join("pki"),
        layout.0.join("logs"),
        layout.0.join("data"),
    ] {
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder);
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
        pki.make(
            authority,
            name,
            &Request {
                common_name: name,
                group: None,
                names,
            },
        )
        .map(drop)
    };
    serve("apiserver", &api_names, pki::CLUSTER)?;
    serve("etcd", &["localhost", "127.0.0.1"], pki::ETCD)?;
    serve("etcd-client", &[], pki::ETCD)?;
    serve("front-proxy", &[], pki::FRONT)?;

    let masters = Some("system:masters");
    let mut users = vec![
        ("admin".to_owned(), "oprc-admin".to_owned(), masters),
        (
            "apiserver-kubelet".to_owned(),
            "kube-apiserver".to_owned(),
            masters,
        ),
        (
            "controller-manager".to_owned(),
            "system:kube-controller-manager".to_owned(),
            None,
        ),
        (
            "scheduler".to_owned(),
            "system:kube-scheduler".to_owned(),
            None,
        ),
        (
            "kube-proxy".to_owned(),
            "system:kube-proxy".to_owned(),
            None,
        ),
        ("prometheus".to_owned(), prometheus::USER.to_owned(), None),
    ];
    match spec.kind {
        NodeKind::Simulated => users.push(("kwok".to_owned(), "oprc-kwok".to_owned(), masters)),
        NodeKind::Real => {
            for number in 0..u8::try_from(spec.nodes).unwrap_or_default() {
                let name = format!("node-{number}");
                let address = spec.addresses().node(number).to_string();
                serve(
                    &node::on_node("kubelet-server", number),
                    &[&name, &address],
                    pki::CLUSTER,
                )?;
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
            &Request {
                common_name: user,
                group: *group,
                names: &[],
            },
        )?;
        let config = kubeconfig(&spec.name, &spec.api_url(), &authority, &identity);
        spec::write_private(&layout.kubeconfig(name), config.to_string().as_bytes())?;
    }
    let scheduler = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": layout.kubeconfig("scheduler"), "qps": 500, "burst": 1000},
        "leaderElection": {"leaderElect": false},
    });
    spec::write_private(
        &layout.config("scheduler.json"),
        scheduler.to_string().as_bytes(),
    )?;
    if spec.prometheus {
        let config = prometheus::config(layout).to_string();
        spec::write_private(&layout.config("prometheus.json"), config.as_bytes())?;
    }
    if spec.kind == NodeKind::Real {
        node::write_configs(spec, layout)
    } else {
        Ok(())
    }
}
