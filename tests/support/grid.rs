//! Data grids under load and faults: clients that record what they do, faults, and the check whether
//! that is linearizable.

// Mostly of JSON, where a missing key is null.
#![allow(clippy::indexing_slicing)]

pub mod client;
pub mod disk;
pub mod function;
pub mod history;
pub mod nemesis;
pub mod network;
pub mod node;
pub mod nodes;
pub mod workload;
