//! The class runtime manager on a real cluster, under the account that it has there.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs
)]

mod drift;
mod idempotence;
mod lifecycle;
mod malformed;
mod port;
mod reflected;
mod refusals;
mod update;
mod writes;
