//! The sandbox itself: what a cluster of it can do, how it recovers, and what it says when it is
//! used wrongly.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs
)]

mod autoscaling;
mod components;
mod isolation;
mod knative;
mod misuse;
mod proof;
mod proxy;
mod simulated;
mod volume;
mod workload;
