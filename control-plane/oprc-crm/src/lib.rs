//! The Class Runtime Manager: the controller of one cluster.
//!
//! Decisions are functions of values ([`class`], [`reconcile`], [`states`]); what is known comes
//! from watches ([`cluster`]); only [`controller`] writes children and status, and only while
//! [`leader`] says so. Clients are served by [`service`], whatever they speak ([`api`]).

pub mod api;
pub mod cluster;
pub mod config;
pub mod controller;
pub mod crd;
pub mod deadline;
pub mod kinds;
pub mod leader;
pub mod metrics;
pub mod observed;
pub mod reconcile;
pub mod run;
pub mod service;
pub mod states;

/// Where the workspace is.
#[cfg(test)]
fn workspace() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
