//! A grid of several nodes: processes with their etcds, which are killed, frozen, replaced and stopped.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod backup;
mod events;
mod failover;
mod harness;
mod membership;
mod metrics;
mod security;
