//! Layered settings, from a table.
//!
//! A program declares its [`Setting`]s once, in a [`Schema`]. From that table come
//! the command line, the documentation, and the values: a flag wins over a
//! variable, a variable over the file, the file over the default, and each value
//! remembers which of them it came from.

mod command;
mod docs;
mod error;
mod file;
mod kind;
mod names;
mod resolve;
mod resolved;
mod schema;
mod value;

pub use error::{Error, Problem};
pub use kind::Kind;
pub use resolve::environment;
pub use resolved::{Resolved, Source};
pub use schema::{Schema, Setting};
pub use value::{FromValue, Value};

#[cfg(test)]
mod tests;
