//! What can go wrong, each with what to do about it.

use std::{io, path::PathBuf};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure that a person can act on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A name that can't name a cluster.
    #[error(
        "'{name}' can't name a cluster: take 1 to 20 lower-case letters, digits and hyphens, beginning with a letter"
    )]
    BadName {
        /// The name as given.
        name: String,
    },
    /// No cluster of that name.
    #[error("there is no cluster '{name}'; {known}. Make it with: oprc sandbox up --name {name}")]
    UnknownCluster {
        /// The name as given.
        name: String,
        /// The clusters that there are, in words.
        known: String,
    },
    /// `up` on a cluster that runs with other options.
    #[error(
        "cluster '{name}' was made with other options ({differences}). Keep it by leaving those options out, or make it anew: oprc sandbox down --name {name}, then up"
    )]
    OptionsDiffer {
        /// The cluster.
        name: String,
        /// Each option with what it is and what was asked for.
        differences: String,
    },
    /// Options that don't go together or are out of range.
    #[error("{0}")]
    BadOption(String),
    /// A real node was asked for where there can be none.
    #[error("no real node on this machine: {reason}. Use --node simulated, or put that right")]
    NoRealNode {
        /// Why not.
        reason: String,
    },
    /// A port that the cluster must have is held by another program.
    #[error(
        "port {port}, which cluster '{cluster}' uses for {role}, is taken by another program. End that program (ss -ltnp 'sport = :{port}' names it), or give the cluster new ports: oprc sandbox down --name {cluster}, then up"
    )]
    PortTaken {
        /// The cluster.
        cluster: String,
        /// What the port is for.
        role: String,
        /// The port.
        port: u16,
    },
    /// A file that was to be loaded and isn't an image.
    #[error(
        "{} is not an OCI image archive: {reason}. Make one with: oprc sandbox image", path.display()
    )]
    NotAnImage {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A program that must be on the machine and isn't.
    #[error("{tool} is needed {purpose} and can't be had: {reason}. {remedy}")]
    Missing {
        /// The program.
        tool: String,
        /// What for.
        purpose: String,
        /// What was tried.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// A program that ran and failed.
    #[error("{what} failed: {detail}")]
    Failed {
        /// What was being done.
        what: String,
        /// The end of what it printed.
        detail: String,
    },
    /// No space left.
    #[error(
        "no space left on the disk while {what}. Free some (a build takes about 8 GB), or point XDG_CACHE_HOME, XDG_STATE_HOME or TMPDIR at a larger disk"
    )]
    DiskFull {
        /// What was being done.
        what: String,
    },
    /// Something didn't happen in time.
    #[error("waited {seconds} s for {what}{detail}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        seconds: u64,
        /// What is known about the cause; empty, or beginning with a separator.
        detail: String,
    },
    /// A component that the cluster has none of.
    #[error("cluster '{cluster}' has no component '{component}'; it has {known}")]
    UnknownComponent {
        /// The cluster.
        cluster: String,
        /// The component as given.
        component: String,
        /// Those that there are.
        known: String,
    },
    /// The cluster exists, its processes don't run.
    #[error("cluster '{name}' isn't running. Start it with: oprc sandbox up --name {name}")]
    NotRunning {
        /// The cluster.
        name: String,
    },
    /// The file system or a socket refused.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The cluster's API refused.
    #[error("{what}: {source}")]
    Kube {
        /// What was being done.
        what: String,
        /// Why it failed.
        source: Box<kube::Error>,
    },
}

impl Error {
    /// An IO failure, told as a full disk where it is one.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { what },
            _ => Self::Io { what, source },
        }
    }

    /// A failure of the cluster's API.
    pub fn kube(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| Self::Kube { what, source: Box::new(source) }
    }

    /// A program that failed, told as a full disk where that was the cause.
    pub(crate) fn failed(what: impl Into<String>, detail: impl Into<String>) -> Self {
        let (what, detail) = (what.into(), detail.into());
        if detail.to_ascii_lowercase().contains("no space left on device") {
            Self::DiskFull { what }
        } else {
            Self::Failed { what, detail }
        }
    }
}
