//! Layered configuration.
//!
//! A program declares its [`Setting`]s once, in a [`Schema`], which provides the command line, the
//! reference page and the values. Flags override environment variables, these override the config
//! file, and the file overrides the defaults. Each value records its source.

mod command;
mod docs;
mod error;
mod file;
mod kind;
mod names;
mod resolve;
mod resolved;
mod schema;
mod source;
mod value;

pub use error::Error;
pub use kind::Kind;
pub use resolve::environment;
pub use resolved::Resolved;
pub use schema::{Schema, Setting};
pub use source::Source;
pub use value::{FromValue, Value};

#[cfg(test)]
mod tests;
