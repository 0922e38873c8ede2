//! The package manager as a process, with CRMs on a real cluster.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs
)]

mod access;
mod any_cluster;
mod clusters;
mod command_line;
mod crash_points;
mod killed;
mod openapi;
mod orphans;
mod proof;
mod two_clusters;
