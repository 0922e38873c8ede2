//! Options of a cluster, and the stored specification.

use std::{fs, io, net::Ipv4Addr, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    Error, Result, files,
    network::{self, Addresses},
    paths,
};

pub const DEFAULT_NAME: &str = "oprc";

/// Preferred port of the API server of a cluster with real nodes, which has its own address.
const API_PORT: u16 = 6443;
/// Preferred port of Prometheus of such a cluster.
const PROMETHEUS_PORT: u16 = 9090;

/// Requested kind of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NodeChoice {
    /// Real nodes if this machine supports them.
    #[default]
    Auto,
    Real,
    Simulated,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// kubelet, containerd and kube-proxy run containers.
    Real,
    /// KWOK marks pods as ready; no container runs.
    Simulated,
}

/// Options of `up`. Defaults leave an existing cluster unchanged.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub node: NodeChoice,
    /// Number of nodes of a new cluster, 1 by default.
    pub nodes: Option<u16>,
    pub prometheus: bool,
    /// Knative Serving with Kourier.
    pub knative: bool,
    /// Lets etcd acknowledge writes before they are on the disk, to speed up tests.
    pub no_fsync: bool,
}

/// A cluster's stored specification: everything that is needed to start its processes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    pub name: String,
    pub kind: NodeKind,
    pub nodes: u16,
    pub prometheus: bool,
    pub knative: bool,
    /// Whether etcd syncs writes to the disk before it acknowledges them.
    pub fsync: bool,
    pub(crate) slot: u8,
    pub(crate) ports: Ports,
    pub(crate) programs: Programs,
    /// Whether the cluster has been completely ready once.
    pub(crate) complete: bool,
    /// The cluster that this one is deleted with.
    #[serde(default)]
    pub owner: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ports {
    pub(crate) api: u16,
    pub(crate) etcd: u16,
    pub(crate) etcd_peer: u16,
    pub(crate) prometheus: u16,
}

/// Paths of the programs.
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

    pub fn folder(&self) -> Result<PathBuf> {
        Self::folder_of(&self.name)
    }

    /// The stored specification, if the cluster exists.
    pub fn load(name: &str) -> Result<Option<Self>> {
        let file = Self::folder_of(name)?.join("cluster.json");
        match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| {
                let remedy = format!("Delete the cluster with: oprc sandbox down --name {name}");
                Error::failed(format!("reading {}", file.display()), format!("{error}. {remedy}"))
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::path("reading", &file)(error)),
        }
    }

    /// Stores the specification atomically.
    pub(crate) fn save(&self) -> Result<()> {
        let folder = self.folder()?;
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::from);
        text.and_then(|text| files::write_atomically(&folder.join("cluster.json"), &text))
            .map_err(Error::path("storing the cluster in", &folder))
    }

    /// Names of all clusters that have a folder, sorted.
    pub fn names() -> Result<Vec<String>> {
        let items = fs::read_dir(paths::clusters()?).into_iter().flatten().flatten();
        let names = items.filter_map(|item| item.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter(|name| check_name(name).is_ok()).collect();
        names.sort();
        Ok(names)
    }

    /// Names of the clusters owned by `owner`. Unreadable ones count as not owned.
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

    /// The address of the API server and Prometheus. They never listen on all interfaces.
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

    pub fn api_url(&self) -> String {
        format!("https://{}:{}", self.host(), self.ports.api)
    }

    pub fn prometheus_url(&self) -> Option<String> {
        self.prometheus.then(|| format!("http://{}:{}", self.host(), self.ports.prometheus))
    }

    pub fn node_names(&self) -> Vec<String> {
        (0..self.nodes).map(|node| format!("node-{node}")).collect()
    }

    /// The options that this cluster doesn't satisfy, as a phrase.
    pub(crate) fn differences(&self, options: &Options) -> Option<String> {
        let (node, real) = (options.node, self.kind == NodeKind::Real);
        let nodes = options.nodes.unwrap_or(self.nodes);
        let differences: [(bool, &str); 6] = [
            (node == NodeChoice::Real && !real, "its nodes are simulated, not real"),
            (node == NodeChoice::Simulated && real, "its nodes are real, not simulated"),
            (nodes != self.nodes, &format!("it has {} nodes, not {nodes}", self.nodes)),
            (options.prometheus && !self.prometheus, "it has no Prometheus"),
            (options.knative && !self.knative, "it has no Knative"),
            (options.no_fsync && self.fsync, "its etcd syncs to the disk"),
        ];
        let found: Vec<_> =
            differences.iter().filter_map(|(differs, text)| differs.then_some(*text)).collect();
        (!found.is_empty()).then(|| found.join(", "))
    }
}

impl Ports {
    /// Ports for a new cluster. One with real nodes gets the well-known ports, unless a program
    /// listens there on all addresses.
    pub(crate) fn choose(kind: NodeKind) -> Result<Self> {
        let [etcd, etcd_peer, api, prometheus] = network::free_ports()?;
        let preferred = |port, other| {
            let free = kind == NodeKind::Real && network::is_free(network::PROBE, port);
            if free { port } else { other }
        };
        let (api, prometheus) = (preferred(API_PORT, api), preferred(PROMETHEUS_PORT, prometheus));
        Ok(Self { api, etcd, etcd_peer, prometheus })
    }
}

/// The lowest slot without a cluster of this user and without a bridge.
pub(crate) fn free_slot() -> Result<u8> {
    let specs = Spec::names()?.into_iter().filter_map(|name| Spec::load(&name).ok().flatten());
    let taken: Vec<u8> =
        specs.filter(|spec| spec.kind == NodeKind::Real).map(|spec| spec.slot).collect();
    (0..network::SLOTS)
        .find(|slot| !taken.contains(slot) && Addresses::of(*slot).owner().is_none())
        .ok_or_else(|| Error::NoRealNode {
            reason: format!("this machine already has the maximum of {} clusters", network::SLOTS),
        })
}

/// Checks that a name can be used in file, link and cgroup names.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let letters = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    let valid = letters && name.len() <= 20 && name.starts_with(|c: char| c.is_ascii_lowercase());
    if valid { Ok(()) } else { Err(Error::BadName { name: name.to_owned() }) }
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
    fn reads_specifications_without_owner() {
        let mut text = serde_json::to_value(simulated()).unwrap();
        text.as_object_mut().unwrap().remove("owner");
        assert_eq!(serde_json::from_value::<Spec>(text).unwrap().owner, None);
    }

    #[test]
    fn validates_names() {
        for good in ["a", "oprc", "test-2"] {
            check_name(good).unwrap();
        }
        for bad in ["", "-a", "2a", "A", "a_b", "a/b", "..", "a-name-longer-than-twenty"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn default_options_match_any_cluster() {
        assert_eq!(simulated().differences(&Options::default()), None);
    }

    #[test]
    fn reports_each_differing_option() {
        let requested = Options {
            node: NodeChoice::Real,
            nodes: Some(3),
            prometheus: true,
            knative: true,
            no_fsync: true,
        };
        let differences = simulated().differences(&requested).unwrap();
        for word in ["not real", "2 nodes, not 3", "Prometheus", "Knative", "disk"] {
            assert!(differences.contains(word), "{differences} lacks {word}");
        }
    }
}
