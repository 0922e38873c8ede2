//! Requirements at run time, as pure functions: how many instances a load needs, what the load will
//! be, which resources an instance needs, which workload fits, what to change and when, and whether
//! requirements are met. The simulator plays loads against the same functions.

pub mod capacity;
pub mod compliance;
mod convert;
pub mod enforcement;
mod forecast;
pub mod migration;
pub mod queueing;
mod replicas;
pub mod resources;
pub mod simulate;
mod stopped;

pub use self::{
    forecast::{Forecast, History, forecast},
    replicas::{Bounds, Change, Input, Needs, Safeguards, Wait, decide},
    stopped::Stopped,
};
