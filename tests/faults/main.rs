//! The class runtime manager when things go wrong: it is cut off, killed, frozen, or left alone by
//! the API server.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs
)]

mod cuts;
mod leader;
mod outage;
