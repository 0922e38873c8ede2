//! The store on a real etcd, and what is left of a store when its process is killed.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs
)]

mod admin;
mod history;
mod killed;
mod members;
mod on_etcd;
mod owner;
mod proof;
mod secured;
