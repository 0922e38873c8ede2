//! What was asked for, and what a cluster was made as.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    Error, Result,
    network::{self, Addresses},
    paths,
};

/// The name of a cluster where none is given.
pub const DEFAULT_NAME: &str = "oprc";

/// Port of the API server of a cluster with real nodes, which has an address of its own.
const API_PORT: u16 = 6443;
/// Port of Prometheus beside such a cluster.
const PROMETHEUS_PORT: u16 = 9090;

/// Which kind of nodes is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NodeChoice {
    /// Real ones where this machine can have them.
    #[default]
    Auto,
    /// Real ones, or an error.
    Real,
    /// Simulated ones.
    Simulated,
}

/// Which kind of nodes a cluster has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// kubelet, containerd and kube-proxy, running containers.
    Real,
    /// KWOK: pods turn ready by themselves and nothing runs.
    Simulated,
}

/// What `up` is asked for. What isn't said leaves an existing cluster as it is.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The kind of nodes.
    pub node: NodeChoice,
    /// How many nodes; one if nothing is said.
    pub nodes: Option<u16>,
    /// A Prometheus beside the cluster.
    pub prometheus: bool,
    /// Knative Serving with Kourier in the cluster.
    pub knative: bool,
    /// Let etcd acknowledge what isn't on the disk yet: quicker, for tests that don't crash machines.
    pub no_fsync: bool,
}

/// A cluster as it was made: everything that its processes are started from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// The kind of its nodes.
    pub kind: NodeKind,
    /// How many nodes it has.
    pub nodes: u16,
    /// Whether there is a Prometheus beside it.
    pub prometheus: bool,
    /// Whether it has Knative.
    pub knative: bool,
    /// Whether etcd waits for the disk.
    pub fsync: bool,
    pub(crate) slot: u8,
    pub(crate) ports: Ports,
    pub(crate) programs: Programs,
    /// Whether everything in the cluster was once ready.
    pub(crate) complete: bool,
    /// The cluster that it was made beside, to end with it.
    #[serde(default)]
    pub owner: Option<String>,
}

/// Ports that the cluster's own processes listen on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ports {
    pub(crate) api: u16,
    pub(crate) etcd: u16,
    pub(crate) etcd_peer: u16,
    pub(crate) prometheus: u16,
}

/// Where the programs are that the cluster runs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Programs {
    pub(crate) etcd: PathBuf,
    pub(crate) kube_apiserver: PathBuf,
    pub(crate) kube_controller_manager: PathBuf,
    pub(crate) kube_scheduler: PathBuf,
    pub(crate) kubectl: PathBuf,
    pub(crate) kwok: PathBuf,
    pub(crate) kubelet: PathBuf,
    pub(crate) kube_proxy: PathBuf,
    pub(crate) coredns: PathBuf,
    pub(crate) metrics_server: PathBuf,
    pub(crate) pause: PathBuf,
    pub(crate) containers: PathBuf,
    pub(crate) runc: PathBuf,
    pub(crate) cni: PathBuf,
    pub(crate) prometheus: PathBuf,
}

impl Spec {
    /// The folder of a cluster, whether it exists or not.
    pub fn folder_of(name: &str) -> Result<PathBuf> {
        check_name(name)?;
        Ok(paths::clusters()?.join(name))
    }

    /// The folder of this cluster.
    pub fn folder(&self) -> Result<PathBuf> {
        Self::folder_of(&self.name)
    }

    /// The cluster of that name, if it was ever made.
    pub fn load(name: &str) -> Result<Option<Self>> {
        let file = Self::folder_of(name)?.join("cluster.json");
        let reading = || format!("reading {}", file.display());
        match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| {
                Error::failed(
                    reading(),
                    format!("{error}. Remove what is left: oprc sandbox down --name {name}"),
                )
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(reading())(error)),
        }
    }

    /// Stores it in its folder, in one step.
    pub(crate) fn save(&self) -> Result<()> {
        let folder = self.folder()?;
        let storing = || Error::io(format!("storing the cluster in {}", folder.display()));
        let text = serde_json::to_vec_pretty(self).map_err(|error| storing()(error.into()))?;
        let draft = folder.join("cluster.json.new");
        fs::write(&draft, text).map_err(storing())?;
        fs::rename(draft, folder.join("cluster.json")).map_err(storing())
    }

    /// Names of all clusters that have a folder.
    pub fn names() -> Result<Vec<String>> {
        let Ok(items) = fs::read_dir(paths::clusters()?) else {
            return Ok(Vec::new());
        };
        let names = items.filter_map(|item| item.ok()?.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter(|name| check_name(name).is_ok()).collect();
        names.sort();
        Ok(names)
    }

    /// Names of the clusters that were made beside this one. One that can't be read is nobody's.
    pub fn owned_by(owner: &str) -> Result<Vec<String>> {
        let owned = |name: &String| {
            let spec = Self::load(name).ok().flatten();
            spec.and_then(|spec| spec.owner).is_some_and(|it| it == owner)
        };
        Ok(Self::names()?.into_iter().filter(owned).collect())
    }

    pub(crate) fn addresses(&self) -> Addresses {
        Addresses::of(self.slot)
    }

    /// Where the API server and Prometheus listen: never on all interfaces.
    pub(crate) fn host(&self) -> Ipv4Addr {
        match self.kind {
            NodeKind::Real => self.addresses().host(),
            NodeKind::Simulated => Ipv4Addr::LOCALHOST,
        }
    }

    pub(crate) fn services(&self) -> String {
        match self.kind {
            NodeKind::Real => self.addresses().services(),
            NodeKind::Simulated => "198.19.0.0/16".to_owned(),
        }
    }

    /// The address of the API server.
    pub fn api_url(&self) -> String {
        format!("https://{}:{}", self.host(), self.ports.api)
    }

    /// The address of Prometheus.
    pub fn prometheus_url(&self) -> Option<String> {
        self.prometheus.then(|| format!("http://{}:{}", self.host(), self.ports.prometheus))
    }

    /// Names of the nodes.
    pub fn node_names(&self) -> Vec<String> {
        (0..self.nodes).map(|node| format!("node-{node}")).collect()
    }

    /// What this cluster lacks of what is asked for, in words; nothing is fine.
    pub(crate) fn differences(&self, options: &Options) -> Option<String> {
        let mut found = Vec::new();
        match (options.node, self.kind) {
            (NodeChoice::Real, NodeKind::Simulated) => {
                found.push("its nodes are simulated, not real".to_owned());
            }
            (NodeChoice::Simulated, NodeKind::Real) => {
                found.push("its nodes are real, not simulated".to_owned());
            }
            _ => {}
        }
        if let Some(nodes) = options.nodes.filter(|nodes| *nodes != self.nodes) {
            found.push(format!("it has {} nodes, not {nodes}", self.nodes));
        }
        if options.prometheus && !self.prometheus {
            found.push("it has no Prometheus".to_owned());
        }
        if options.knative && !self.knative {
            found.push("it has no Knative".to_owned());
        }
        if options.no_fsync && self.fsync {
            found.push("its etcd waits for the disk".to_owned());
        }
        (!found.is_empty()).then(|| found.join(", "))
    }
}

impl Ports {
    /// Ports for a new cluster. One with an address of its own has the usual ones where nobody
    /// else has them on all addresses.
    pub(crate) fn choose(kind: NodeKind) -> Result<Self> {
        let [etcd, etcd_peer, api, prometheus] = network::free_ports()?;
        let usual = |port| kind == NodeKind::Real && network::is_free_everywhere(port);
        Ok(Self {
            api: if usual(API_PORT) { API_PORT } else { api },
            etcd,
            etcd_peer,
            prometheus: if usual(PROMETHEUS_PORT) { PROMETHEUS_PORT } else { prometheus },
        })
    }
}

/// The lowest slot that no cluster of this user has and no bridge stands for.
pub(crate) fn free_slot() -> Result<u8> {
    let specs = Spec::names()?.into_iter().filter_map(|name| Spec::load(&name).ok().flatten());
    let real = specs.filter(|spec| spec.kind == NodeKind::Real);
    let taken: Vec<u8> = real.map(|spec| spec.slot).collect();
    (0..network::SLOTS)
        .find(|slot| !taken.contains(slot) && Addresses::of(*slot).owner().is_none())
        .ok_or_else(|| Error::NoRealNode {
            reason: format!("all {} clusters are taken", network::SLOTS),
        })
}

/// Checks that a name can be part of file, link and cgroup names.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let letters = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if letters && name.len() <= 20 && name.starts_with(|c: char| c.is_ascii_lowercase()) {
        Ok(())
    } else {
        Err(Error::BadName { name: name.to_owned() })
    }
}

/// A file in a folder, made readable for its owner alone.
pub(crate) fn write_private(file: &Path, content: &[u8]) -> Result<()> {
    use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(file).and_then(|mut open| open.write_all(content));
    written.map_err(Error::io(format!("writing {}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simulated() -> Spec {
        Spec {
            name: "test".into(),
            kind: NodeKind::Simulated,
            nodes: 2,
            prometheus: false,
            knative: false,
            fsync: true,
            slot: 0,
            ports: Ports { api: 1, etcd: 2, etcd_peer: 3, prometheus: 4 },
            programs: Programs::default(),
            complete: true,
            owner: None,
        }
    }

    #[test]
    fn clusters_from_before_there_were_owners_can_be_read() {
        let mut text = serde_json::to_value(simulated()).unwrap();
        text.as_object_mut().unwrap().remove("owner");
        assert_eq!(serde_json::from_value::<Spec>(text).unwrap().owner, None);
    }

    #[test]
    fn names_are_checked() {
        for good in ["a", "oprc", "test-2"] {
            check_name(good).unwrap();
        }
        for bad in ["", "-a", "2a", "A", "a_b", "a/b", "..", "a-name-longer-than-twenty"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn options_left_out_keep_the_cluster() {
        assert_eq!(simulated().differences(&Options::default()), None);
    }

    #[test]
    fn each_other_option_is_named() {
        let asked = Options {
            node: NodeChoice::Real,
            nodes: Some(3),
            prometheus: true,
            knative: true,
            no_fsync: true,
        };
        let told = simulated().differences(&asked).unwrap();
        for word in ["not real", "2 nodes, not 3", "Prometheus", "Knative", "disk"] {
            assert!(told.contains(word), "{told} lacks {word}");
        }
    }
}
