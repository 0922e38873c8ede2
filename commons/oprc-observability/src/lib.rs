//! Logging and correlation ids.

pub mod correlation;
mod filter;
mod logs;

pub use filter::{Error, LevelHandle};
pub use logs::{Format, init};
