//! Errors, each with a remedy.

use std::{
    fmt::Display,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "'{name}' is not a valid cluster name: use 1 to 20 lower-case letters, digits and hyphens, starting with a letter"
    )]
    BadName { name: String },
    #[error(
        "cluster '{name}' does not exist; {known}. Create it with: oprc sandbox up --name {name}"
    )]
    UnknownCluster {
        name: String,
        /// The existing clusters, as a phrase.
        known: String,
    },
    #[error(
        "cluster '{name}' was created with different options ({differences}). Omit those options to keep the cluster, or recreate it: oprc sandbox down --name {name}, then up"
    )]
    OptionsDiffer {
        name: String,
        /// Each differing option with its present and its requested value.
        differences: String,
    },
    #[error("{0}")]
    BadOption(String),
    #[error(
        "real nodes are not possible on this machine: {reason}. Fix that, or use --node simulated"
    )]
    NoRealNode { reason: String },
    #[error(
        "port {port}, which cluster '{cluster}' uses for {role}, is in use by another program. Stop that program (find it with: ss -ltnp 'sport = :{port}'), or recreate the cluster with new ports: oprc sandbox down --name {cluster}, then up"
    )]
    PortTaken { cluster: String, role: String, port: u16 },
    #[error(
        "{} is not an OCI image archive: {reason}. Build one with: oprc sandbox image", path.display()
    )]
    NotAnImage { path: PathBuf, reason: String },
    #[error("{tool} is required {purpose} but not available: {reason}. {remedy}")]
    Missing { tool: String, purpose: String, reason: String, remedy: String },
    #[error("{what} failed: {detail}")]
    Failed {
        what: String,
        /// The last lines of the program's output.
        detail: String,
    },
    #[error(
        "no space left on the disk while {what}. Free some space (a build needs about 8 GB), or set XDG_CACHE_HOME, XDG_STATE_HOME or TMPDIR to a folder on a larger disk"
    )]
    DiskFull { what: String },
    #[error("timed out after {seconds} s waiting for {what}{detail}")]
    Timeout {
        what: String,
        seconds: u64,
        /// What is known about the cause: empty, or starting with a separator.
        detail: String,
    },
    #[error("cluster '{cluster}' has no component '{component}'; components: {known}")]
    UnknownComponent { cluster: String, component: String, known: String },
    #[error("cluster '{name}' is not running. Start it with: oprc sandbox up --name {name}")]
    NotRunning { name: String },
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{what}: {source}")]
    Kube { what: String, source: Box<kube::Error> },
}

impl Error {
    /// An IO error, reported as [`Error::DiskFull`] where that is the cause.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { what },
            _ => Self::Io { what, source },
        }
    }

    /// An IO error on a path; `doing` is a participle such as "reading".
    pub(crate) fn path(doing: &str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        Self::io(format!("{doing} {}", path.display()))
    }

    pub(crate) fn timeout(what: impl Into<String>, limit: Duration) -> Self {
        Self::Timeout { what: what.into(), seconds: limit.as_secs(), detail: String::new() }
    }

    /// A failed program, reported as [`Error::DiskFull`] where that is the cause.
    pub(crate) fn failed(what: impl Into<String>, detail: impl Display) -> Self {
        let (what, detail) = (what.into(), detail.to_string());
        let disk_full = detail.to_ascii_lowercase().contains("no space left on device");
        if disk_full { Self::DiskFull { what } } else { Self::Failed { what, detail } }
    }
}
