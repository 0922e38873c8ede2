//! Creates, opens and deletes clusters.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use kube::{
    Client,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::{
    Error, Result, addons, apply, cgroup,
    command::{self, blocking},
    components::components,
    create, files, image,
    image_loader::ImageLoader,
    kubeconfig::kubeconfig,
    layout::Layout,
    network::{self, Addresses},
    paths,
    pki::{Identity, Pki},
    progress::{self, Step},
    spec::{NodeKind, Options, Spec},
    supervisor::{self, State, Supervisor},
};

const API_READY_TIMEOUT: Duration = Duration::from_mins(3);
/// Longer than the API server keeps a silent watch open.
const READ_TIMEOUT: Duration = Duration::from_mins(10);

#[derive(Debug, Clone)]
pub struct Cluster {
    spec: Spec,
    layout: Layout,
}

impl Cluster {
    /// Creates the cluster or starts the existing one, and returns when it is ready.
    pub async fn up(name: &str, options: &Options) -> Result<Self> {
        Self::up_owned_by(name, options, None).await
    }

    /// Like [`Cluster::up`] for a cluster that is deleted together with `owner`. The owner of an
    /// existing cluster does not change.
    pub async fn up_owned_by(name: &str, options: &Options, owner: Option<&str>) -> Result<Self> {
        let supervisor = Supervisor::of(name)?;
        let _lock = lock(name).await?;
        let existing = Spec::load(name)?;
        if let Some(differences) = existing.as_ref().and_then(|spec| spec.differences(options)) {
            return Err(Error::OptionsDiffer { name: name.to_owned(), differences });
        }
        let new = existing.is_none();
        let mut spec = if let Some(spec) = existing {
            spec
        } else {
            files::remove_folder(&supervisor.folder)?;
            let (name, options) = (name.to_owned(), options.clone());
            let owner = owner.map(str::to_owned);
            blocking(move || create::create(&name, &options, owner)).await?
        };
        let since = (!new).then(Timestamp::now);
        let started = !supervisor.is_alive().await?;
        if started {
            spec = blocking(move || start(spec, new)).await?;
        }
        let mut cluster = Self { layout: Layout::of(&spec)?, spec };
        let client = cluster.client().await?;
        let incomplete = started || !cluster.spec.complete;
        let ready = async {
            let api = apply::api_ready(&client, API_READY_TIMEOUT);
            if incomplete {
                let step = Step::begin("Starting the control plane and loading system images");
                let (loader, ()) = futures::try_join!(addons::load_images(&cluster.spec), api)?;
                step.done();
                let loader = loader.as_ref();
                addons::install(&cluster.spec, &cluster.layout, &client, loader, since).await
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

    pub fn open(name: &str) -> Result<Self> {
        let Some(spec) = Spec::load(name)? else {
            let known = match Spec::names()?.as_slice() {
                [] => "there are no clusters".to_owned(),
                names => format!("existing clusters: {}", names.join(", ")),
            };
            return Err(Error::UnknownCluster { name: name.to_owned(), known });
        };
        Ok(Self { layout: Layout::of(&spec)?, spec })
    }

    /// Stops a cluster in any state and removes everything that it left on this machine.
    pub async fn down(name: &str) -> Result<()> {
        let supervisor = Supervisor::of(name)?;
        let _lock = lock(name).await?;
        if !supervisor.folder.exists() {
            return Self::open(name).map(drop);
        }
        supervisor.shut_down().await?;
        // Uses only the folder, so that a cluster with an unreadable file can be deleted.
        let folder = supervisor.folder;
        blocking(move || remove_leftovers(&folder).and_then(|()| remove_folder(&folder))).await
    }

    /// Adds the last log lines of a failing component to a timeout.
    async fn explain(&self, error: Error) -> Error {
        let Error::Timeout { what, seconds, .. } = error else { return error };
        let components = self.supervisor().status().await.unwrap_or_default();
        let restarted = components.iter().filter(|component| component.restarts > 0);
        let failing = restarted
            .max_by_key(|component| (component.state == State::Waiting, component.restarts));
        let detail = match failing {
            Some(component) => {
                let log = fs::read_to_string(self.layout.log(&component.name)).unwrap_or_default();
                let tail = command::last_lines(&log, 5);
                format!("; {} keeps exiting. Last log lines:\n{tail}", component.name)
            }
            None if components.is_empty() => {
                let log = fs::read_to_string(self.layout.log("supervisor")).unwrap_or_default();
                format!("; the supervisor does not respond. Its log:\n{log}")
            }
            None => format!("; see: oprc sandbox logs COMPONENT --name {}", self.spec.name),
        };
        Error::Timeout { what, seconds, detail }
    }

    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    pub fn pki(&self) -> Pki {
        self.layout.pki()
    }

    pub fn supervisor(&self) -> Supervisor {
        Supervisor { cluster: self.spec.name.clone(), folder: self.layout.0.clone() }
    }

    /// The kubeconfig file of the cluster administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.layout.kubeconfig("admin")
    }

    /// A client with cluster-admin rights.
    pub async fn client(&self) -> Result<Client> {
        let file = self.kubeconfig();
        let config = Kubeconfig::read_from(&file)
            .map_err(|error| Error::failed(format!("Reading {}", file.display()), error))?;
        client_of(config).await
    }

    /// A client that connects as `identity` to `url`, usually a proxy of the API server.
    pub async fn client_at(&self, url: &str, identity: &Identity) -> Result<Client> {
        let config = kubeconfig(&self.spec.name, url, &self.pki().authority()?, identity);
        let config = serde_json::from_value(config);
        client_of(config.map_err(|error| Error::failed("Creating a kubeconfig", error))?).await
    }

    /// A kubeconfig to connect as `identity` to `url`, usually a proxy of the API server.
    pub fn kubeconfig_at(&self, url: &str, identity: &Identity) -> Result<String> {
        let config = kubeconfig(&self.spec.name, url, &self.pki().authority()?, identity);
        Ok(config.to_string())
    }

    pub fn kubectl(&self) -> Command {
        let mut kubectl = Command::new(&self.spec.programs.kubectl);
        kubectl.env("KUBECONFIG", self.kubeconfig());
        for variable in command::PROXY_VARIABLES {
            kubectl.env_remove(variable);
        }
        kubectl
    }

    /// Loads an image archive into all nodes and returns the names of its images.
    pub async fn load_image(&self, archive: &Path) -> Result<Vec<String>> {
        let images = image::inspect(archive)?;
        if self.spec.kind == NodeKind::Simulated {
            progress::note("simulated nodes run no containers, so no image is loaded");
        } else {
            ImageLoader::connect(&self.spec).await?.load(archive).await?;
        }
        Ok(images.into_iter().map(|image| image.name).collect())
    }

    /// The log file of a component, or of the supervisor.
    pub fn log(&self, component: &str) -> Result<PathBuf> {
        let components = components(&self.spec, &self.layout);
        let mut known: Vec<_> = components.into_iter().map(|component| component.name).collect();
        known.push("supervisor".to_owned());
        if known.iter().any(|name| name == component) {
            return Ok(self.layout.log(component));
        }
        Err(self.supervisor().unknown(component, &known))
    }
}

async fn client_of(config: Kubeconfig) -> Result<Client> {
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(config, &options).await;
    let mut config = config.map_err(|error| Error::failed("Reading a kubeconfig", error))?;
    // The cluster is local: the proxy of the environment must not be used.
    config.proxy_url = None;
    config.read_timeout = Some(READ_TIMEOUT);
    let what = "connecting to the cluster".to_owned();
    Client::try_from(config).map_err(|source| Error::Kube { what, source: Box::new(source) })
}

/// Excludes other commands on this cluster until the file is dropped.
async fn lock(name: &str) -> Result<fs::File> {
    let clusters = paths::clusters()?;
    files::create_folder(&clusters)?;
    // The lock file is never deleted: another command may be waiting for it.
    let (file, what) = (clusters.join(format!("{name}.lock")), format!("cluster '{name}'"));
    blocking(move || files::wait_for_lock(&file, &what)).await
}

/// Starts a stopped cluster. The programs of an existing one may have been deleted from the cache.
fn start(mut spec: Spec, new: bool) -> Result<Spec> {
    remove_leftovers(&spec.folder()?)?;
    if !new {
        create::refresh_programs(&mut spec)?;
    }
    let host = match spec.kind {
        // The cluster's own address doesn't exist yet.
        NodeKind::Real => network::PROBE,
        NodeKind::Simulated => Ipv4Addr::LOCALHOST,
    };
    let ports = &spec.ports;
    for (role, port, address, used) in [
        ("etcd", ports.etcd, Ipv4Addr::LOCALHOST, true),
        ("etcd peers", ports.etcd_peer, Ipv4Addr::LOCALHOST, true),
        ("the API server", ports.api, host, true),
        ("Prometheus", ports.prometheus, host, spec.prometheus),
    ] {
        if used && !network::is_free(address, port) {
            let (cluster, role) = (spec.name.clone(), role.to_owned());
            return Err(Error::PortTaken { cluster, role, port });
        }
    }
    if let Some(owner) = spec.addresses().owner().filter(|_| spec.kind == NodeKind::Real) {
        let name = &spec.name;
        return Err(Error::NoRealNode {
            reason: format!(
                "the addresses of cluster '{name}' are in use by '{owner}': stop that cluster, or recreate this one with 'oprc sandbox down --name {name}' and 'up'"
            ),
        });
    }
    supervisor::spawn(&spec)?;
    Ok(spec)
}

/// Removes the bridge and the cgroups of the cluster in `folder` after its processes have exited.
fn remove_leftovers(folder: &Path) -> Result<()> {
    for addresses in Addresses::owned_by(folder) {
        cgroup::remove(addresses)?;
        // Last, because the bridge records the owner.
        addresses.remove_bridge()?;
    }
    Ok(())
}

/// Deletes a cluster's folder, with retries because an exiting process may still write to it.
fn remove_folder(folder: &Path) -> Result<()> {
    command::retry(200, Duration::from_millis(50), || files::remove_folder(folder))
}
