//! Paths below a cluster's folder.

use std::path::PathBuf;

use crate::{Result, pki::Pki, spec::Spec};

#[derive(Debug, Clone)]
pub(crate) struct Layout(pub(crate) PathBuf);

impl Layout {
    pub(crate) fn of(spec: &Spec) -> Result<Self> {
        spec.folder().map(Self)
    }

    pub(crate) fn pki(&self) -> Pki {
        Pki { folder: self.0.join("pki") }
    }

    pub(crate) fn kubeconfig(&self, user: &str) -> PathBuf {
        self.0.join(format!("{user}.kubeconfig"))
    }

    pub(crate) fn config(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn data(&self, component: &str) -> PathBuf {
        self.0.join("data").join(component)
    }

    pub(crate) fn log(&self, component: &str) -> PathBuf {
        self.0.join("logs").join(format!("{component}.log"))
    }
}
