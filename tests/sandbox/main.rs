//! The sandbox: features of its clusters, recovery and error messages.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod autoscaling;
mod components;
mod error_messages;
mod isolation;
mod knative;
mod proof;
mod proxy;
mod simulated;
mod volume;
mod workload;
