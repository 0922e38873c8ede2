//! PM's store on a real etcd, and after kills of its process.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod admin;
mod history;
mod killed;
mod members;
mod on_etcd;
mod owner;
mod proof;
mod secured;
