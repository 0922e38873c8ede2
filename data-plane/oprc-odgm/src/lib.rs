//! The data grid of a class: stores its objects, and calls their methods.
//!
//! The state of an object travels with a call: its function gets the state and returns the new one.
//! Calls of one object take turns. A change, and the result for an idempotency key, are one transaction
//! that fails if anything else has changed the object, so that correctness doesn't depend on turns.

mod api;
pub mod class;
mod class_file;
pub mod config;
mod counts;
mod equality;
mod error;
mod function;
mod grid;
mod invocation;
pub mod node;
mod object_change;
mod object_id;
mod once;
pub mod outbox;
mod record;
mod status;
mod stored_event;
mod turns;

pub use api::router;
pub use class_file::ClassFile;
pub use error::Error;
pub use grid::Grid;
pub use invocation::{Expected, Invocation, Object, ObjectPage, Outcome};
pub use object_id::ObjectId;
