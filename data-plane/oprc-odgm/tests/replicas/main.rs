//! A grid of several nodes: processes with their etcds, which are killed, frozen, replaced and stopped.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod authority;
mod backup;
mod certificates;
mod events;
mod failover;
mod full_store;
mod function;
mod harness;
mod macros;
mod membership;
mod metrics;
mod poll;
mod security;
