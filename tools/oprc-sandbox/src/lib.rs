//! A real Kubernetes on this machine: for trying OaaS, and for its tests.
//!
//! [`Cluster::up`] fetches or builds the programs, starts them under a supervisor that outlives
//! the caller, and returns when the cluster is ready. Real nodes run containers; simulated ones
//! need no root and carry thousands of pods.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod addons;
mod apply;
mod cache;
mod cgroups;
mod cluster;
mod command;
mod companion;
mod components;
mod creation;
mod error;
pub mod image;
mod knative;
mod kubeconfig;
mod loader;
mod network;
pub mod node;
mod paths;
mod pki;
mod programs;
pub mod progress;
mod prometheus;
pub mod proxy;
mod spec;
pub mod supervisor;

pub use apply::{apply, deployment_ready, documents, within};
pub use cluster::Cluster;
pub use companion::Companion;
pub use error::{Error, Result};
pub use pki::{Identity, Pki};
pub use programs::ASSETS;
pub use spec::{DEFAULT_NAME, NodeChoice, NodeKind, Options, Spec};
