//! Makes, finds and ends clusters.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use kube::{
    Client,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::{
    Error, Result, addons, apply, cache, cgroups,
    command::{self, off_thread},
    components::{Component, Layout, components},
    creation, image,
    kubeconfig::kubeconfig,
    loader::Loader,
    network::{self, Addresses},
    paths,
    pki::{self, Identity, Pki},
    progress::{self, Step},
    spec::{NodeKind, Options, Spec},
    supervisor::{self, ComponentStatus, State, Supervisor},
};

const API_READY: Duration = Duration::from_mins(3);
/// How long the API server may say nothing; a watch is ended by it before that.
const SILENCE: Duration = Duration::from_mins(10);

/// A cluster of this machine.
#[derive(Debug, Clone)]
pub struct Cluster {
    spec: Spec,
    layout: Layout,
}

impl Cluster {
    /// Makes a cluster, or finds the one of that name, and returns when it is ready.
    pub async fn up(name: &str, options: &Options) -> Result<Self> {
        Self::up_as(name, options, None).await
    }

    /// The same for a cluster beside another: it tells whose it is as soon as it is there, so that
    /// it is found when that one ends. One that was there already stays as it is.
    pub async fn up_beside(name: &str, options: &Options, owner: &str) -> Result<Self> {
        Self::up_as(name, options, Some(owner.to_owned())).await
    }

    async fn up_as(name: &str, options: &Options, owner: Option<String>) -> Result<Self> {
        let folder = Spec::folder_of(name)?;
        let _lock = lock(name).await?;
        let (mut spec, new) = match Spec::load(name)? {
            Some(spec) => match spec.differences(options) {
                None => (spec, false),
                Some(differences) => {
                    return Err(Error::OptionsDiffer { name: name.to_owned(), differences });
                }
            },
            None => {
                cache::remove(&folder)?;
                let (name, options) = (name.to_owned(), options.clone());
                (off_thread(move || creation::make(&name, &options, owner)).await?, true)
            }
        };
        let supervisor = Supervisor { cluster: name.to_owned(), folder };
        let since = (!new).then(Timestamp::now);
        let started = !supervisor.is_alive().await?;
        if started {
            spec = off_thread(move || start(spec, new)).await?;
        }
        let mut cluster = Self { layout: Layout::of(&spec)?, spec };
        let client = cluster.client().await?;
        let incomplete = started || !cluster.spec.complete;
        let ready = async {
            let api = apply::api_ready(&client, API_READY);
            if incomplete {
                let step = Step::begin("Starting the control plane and loading system images");
                let (loader, ()) = futures::try_join!(addons::load(&cluster.spec), api)?;
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

    /// The cluster of that name.
    pub fn open(name: &str) -> Result<Self> {
        let Some(spec) = Spec::load(name)? else {
            let names = Spec::names()?;
            let known = if names.is_empty() {
                "there are none".to_owned()
            } else {
                format!("there are: {}", names.join(", "))
            };
            return Err(Error::UnknownCluster { name: name.to_owned(), known });
        };
        Ok(Self { layout: Layout::of(&spec)?, spec })
    }

    /// Ends a cluster and takes away all that it left on this machine, whatever state it is in.
    pub async fn down(name: &str) -> Result<()> {
        let folder = Spec::folder_of(name)?;
        let _lock = lock(name).await?;
        if !folder.exists() {
            return Self::open(name).map(drop);
        }
        Supervisor { cluster: name.to_owned(), folder: folder.clone() }.shut_down().await?;
        // By the folder alone: a cluster that can't be read any more can be removed all the same.
        off_thread(move || sweep(&folder).and_then(|()| remove_folder(&folder))).await
    }

    /// Adds to an error what the components' own words tell about its cause.
    async fn explain(&self, error: Error) -> Error {
        let Error::Timeout { what, seconds, .. } = error else {
            return error;
        };
        let components = self.supervisor().status().await.unwrap_or_default();
        let restless = components.iter().filter(|component| component.restarts > 0);
        let failing = restless
            .max_by_key(|component| (component.state == State::Waiting, component.restarts));
        let detail = match failing {
            Some(component) => {
                let log = fs::read_to_string(self.layout.log(&component.name)).unwrap_or_default();
                let lines: Vec<_> = log.lines().rev().take(5).collect();
                let tail: Vec<_> = lines.into_iter().rev().collect();
                format!("; {} keeps ending. Its last words:\n{}", component.name, tail.join("\n"))
            }
            None if components.is_empty() => {
                let log = fs::read_to_string(self.layout.log("supervisor")).unwrap_or_default();
                format!("; the supervisor doesn't answer. Its last words:\n{log}")
            }
            None => format!("; look at: oprc sandbox logs COMPONENT --name {}", self.spec.name),
        };
        Error::Timeout { what, seconds, detail }
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
        Supervisor { cluster: self.spec.name.clone(), folder: self.layout.0.clone() }
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

    /// A kubeconfig for an identity, to an address that stands for the API server.
    pub fn kubeconfig_at(&self, url: &str, identity: &Identity) -> Result<String> {
        let config = kubeconfig(&self.spec.name, url, &self.authority()?, identity);
        Ok(config.to_string())
    }

    /// `kubectl` for this cluster.
    pub fn kubectl(&self) -> Command {
        let mut kubectl = Command::new(&self.spec.programs.kubectl);
        kubectl.env("KUBECONFIG", self.kubeconfig());
        for variable in command::PROXY_VARIABLES {
            kubectl.env_remove(variable);
        }
        kubectl
    }

    /// Loads an image archive into all nodes and gives the names of the images in it.
    pub async fn load_image(&self, archive: &Path) -> Result<Vec<String>> {
        if self.spec.kind == NodeKind::Simulated {
            let images = image::inspect(archive)?;
            progress::note("simulated nodes run no containers: nothing to load");
            return Ok(images.into_iter().map(|image| image.name).collect());
        }
        let archive = fs::canonicalize(archive).unwrap_or_else(|_| archive.to_owned());
        image::inspect(&archive)?;
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
        Err(Error::UnknownComponent { cluster, component, known: known.join(", ") })
    }
}

async fn client_of(config: Kubeconfig) -> Result<Client> {
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(config, &options).await;
    let mut config =
        config.map_err(|error| Error::failed("Reading a kubeconfig", error.to_string()))?;
    // The cluster is on this machine, whatever proxy the environment names.
    config.proxy_url = None;
    config.read_timeout = Some(SILENCE);
    Client::try_from(config).map_err(Error::kube("connecting to the cluster"))
}

/// Keeps other commands off the cluster of that name until the answer is dropped.
async fn lock(name: &str) -> Result<fs::File> {
    let clusters = paths::clusters()?;
    fs::create_dir_all(&clusters).map_err(Error::io(format!("making {}", clusters.display())))?;
    // The file stays: another command may be waiting for it.
    let (file, what) = (clusters.join(format!("{name}.lock")), format!("cluster '{name}'"));
    off_thread(move || cache::wait_for_lock(&file, &what)).await
}

/// Starts a cluster that doesn't run. One that isn't new may find its programs gone.
fn start(mut spec: Spec, new: bool) -> Result<Spec> {
    sweep(&spec.folder()?)?;
    if !new {
        creation::refresh(&mut spec)?;
    }
    let taken = |role: &str, port| Error::PortTaken {
        cluster: spec.name.clone(),
        role: role.to_owned(),
        port,
    };
    let ports = &spec.ports;
    for (role, port) in [("etcd", ports.etcd), ("etcd's peers", ports.etcd_peer)] {
        if !network::is_free(Ipv4Addr::LOCALHOST, port) {
            return Err(taken(role, port));
        }
    }
    let listening =
        [("the API", ports.api, true), ("Prometheus", ports.prometheus, spec.prometheus)];
    for (role, port, used) in listening {
        let free = match spec.kind {
            // The address of its own doesn't exist yet.
            NodeKind::Real => network::is_free_everywhere(port),
            NodeKind::Simulated => network::is_free(Ipv4Addr::LOCALHOST, port),
        };
        if used && !free {
            return Err(taken(role, port));
        }
    }
    if let Some(owner) = spec.addresses().owner().filter(|_| spec.kind == NodeKind::Real) {
        let name = &spec.name;
        return Err(Error::NoRealNode {
            reason: format!(
                "the addresses of cluster '{name}' are taken by '{owner}': end that one, or make this one anew with 'oprc sandbox down --name {name}' and 'up'"
            ),
        });
    }
    supervisor::spawn(&spec)?;
    Ok(spec)
}

/// Takes away what the cluster in `folder` left on this machine when its processes had ended.
fn sweep(folder: &Path) -> Result<()> {
    for addresses in Addresses::owned_by(folder) {
        cgroups::remove(addresses)?;
        // Last: it tells whose all of this is.
        addresses.remove_bridge()?;
    }
    Ok(())
}

/// Deletes a cluster's folder; a process that is just dying may still write to it.
fn remove_folder(folder: &Path) -> Result<()> {
    let mut result = Ok(());
    for _ in 0..200 {
        result = cache::remove(folder);
        if result.is_ok() {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    result
}
