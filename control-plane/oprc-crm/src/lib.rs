//! The Class Runtime Manager: the controller of one cluster.

pub mod class;
pub mod cluster;
pub mod controller;
pub mod crd;
pub mod environment;
pub mod kinds;
pub mod leader;
pub mod metrics;
pub mod names;
pub mod observed;
pub mod reconcile;
