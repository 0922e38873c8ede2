//! CRM on a real cluster, with the permissions of its service account.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod at_rest;
mod bystander;
mod crd;
mod data_grid;
mod data_grid_replicas;
mod drift;
mod exclusive;
mod id_collisions;
mod lifecycle;
mod malformed_specs;
mod memory;
mod metrics;
mod migration;
mod owned_fields;
mod prometheus_outage;
mod proxy;
mod rejections;
mod request_counts;
mod security;
mod server;
mod signals;
mod spec_fuzzer;
mod update;
