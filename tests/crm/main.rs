//! The class runtime manager on a real cluster, under the account that it has there.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs
)]

mod at_rest;
mod request_counts;
mod crd;
mod drift;
mod owned_fields;
mod metrics;
mod data_grid;
mod malformed_specs;
mod id_collisions;
mod lifecycle;
mod spec_fuzzer;
mod bystander;
mod server;
mod rejections;
mod security;
mod update;
mod exclusive;
