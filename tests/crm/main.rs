//! The class runtime manager on a real cluster, under the account that it has there.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs
)]

mod at_rest;
mod counting;
mod definition;
mod drift;
mod fields;
mod figures;
mod grid;
mod harmless;
mod idempotence;
mod lifecycle;
mod malformed;
mod neighbour;
mod port;
mod refusals;
mod security;
mod update;
mod when_quiet;
