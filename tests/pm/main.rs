//! PM processes with CRMs on real clusters.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod access;
mod any_cluster;
mod clusters;
mod command_line;
mod crash_points;
mod killed;
mod members;
mod openapi;
mod orphans;
mod proof;
mod two_clusters;
