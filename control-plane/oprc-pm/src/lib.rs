//! The Package Manager: a registry of packages, and deployments of their classes to clusters.
//!
//! Layers, each of which uses only those below it:
//!
//! - `api`: REST, event stream, probes and metrics
//! - `service`: apply, roll back, delete and adopt deployments; `registry`: packages
//! - `dispatcher`: drives clusters to the stored state
//! - `crm_client`: calls and watches of the clusters' CRMs
//! - `state`: stored records, their cache, and commits
//! - `planner`, `rollout`: pure decisions

pub mod api;
mod backoff;
mod blocking;
mod clock;
pub mod config;
pub mod crm_client;
pub mod dispatcher;
pub mod error;
mod id;
mod paging;
pub mod planner;
pub mod registry;
pub mod rollout;
pub mod run;
pub mod service;
pub mod state;

#[cfg(test)]
mod tests;

#[cfg(test)]
fn workspace() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
