//! Objects of data grids under load and faults: linearizability, and delivery of events. The nodes are
//! processes on this machine.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod checker;
mod events;
mod linearizability;
mod network;
mod planted;
mod proof;
mod takeover;
