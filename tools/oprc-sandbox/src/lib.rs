//! Local Kubernetes clusters for development and tests.
//!
//! [`Cluster::up`] downloads or builds the programs, starts them under a supervisor process that
//! outlives the caller, and returns when the cluster is ready. Real nodes run containers; simulated
//! nodes need no root and scale to thousands of pods.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod addons;
mod apply;
mod cache;
mod cgroup;
mod cluster;
mod command;
mod companion;
mod component;
mod components;
mod create;
mod error;
mod files;
pub mod image;
mod image_loader;
mod knative;
mod kubeconfig;
mod layout;
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
pub use programs::{
    ASSETS, etcd_program, linearizability_checker, prometheus_program, queue_proxy,
};
pub use spec::{DEFAULT_NAME, NodeChoice, NodeKind, Options, Spec};
