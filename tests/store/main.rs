//! PM's store on a real etcd, and after kills of its process.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod admin;
mod history;
mod killed;
mod leases;
mod members;
mod on_etcd;
mod proof;
mod secured;
mod space;
