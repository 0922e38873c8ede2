//! Logs of the control plane's programs.

pub mod correlation;
mod filter;
mod logs;

pub use filter::{Error, LevelHandle};
pub use logs::{Format, init};
