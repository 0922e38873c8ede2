//! Calls through a running proxy to a real HTTP server.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod drain;
mod limits;
mod metrics;
mod protocols;
mod support;
