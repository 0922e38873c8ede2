//! The Package Manager: people publish packages of classes, and it brings clusters to run them.
//!
//! `registry` knows packages, `planner` decides what is to run where, `deployments` keeps what is
//! wanted, `dispatcher` brings each cluster to it, `clusters` are the ways there, and `api` is what
//! people and programs ask.

pub mod api;
pub mod clusters;
pub mod config;
pub mod deployments;
pub mod dispatcher;
pub mod error;
mod heavy;
pub mod planner;
pub mod records;
pub mod registry;
pub mod run;
pub mod stamp;
mod states;
