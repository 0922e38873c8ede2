//! The Class Runtime Manager: the controller of the ClassRuntimes of one cluster.
//!
//! Decisions are pure functions ([`reconcile`], [`phase_mapping`]) of what the watches
//! report ([`cache`]). Only [`controller`] writes children and status, and only while this process is
//! the leader ([`leader`]). [`signals`] are what metrics ([`provider`]) say about load and resources;
//! [`analyzer`] compares them with the requirements of functions.
//! [`service`] serves clients, over the protocols of [`api`].

pub mod analyzer;
pub mod api;
pub mod cache;
pub mod config;
pub mod controller;
pub mod crd;
pub mod deadline;
pub mod decode;
pub mod grid_client;
pub mod kinds;
pub mod leader;
pub mod metrics;
pub mod observations;
pub mod phase_mapping;
pub mod provider;
pub mod reason;
pub mod reconcile;
pub mod run;
pub mod service;
pub mod signals;

#[cfg(test)]
fn workspace() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
