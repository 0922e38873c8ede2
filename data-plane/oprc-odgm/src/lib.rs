//! The data grid of a class: stores its objects, and calls their methods.
//!
//! The state of an object travels with a call: its function gets the state and returns the new one.
//! Calls of one object take turns. A change, and the result for an idempotency key, are one transaction
//! that fails if anything else has changed the object, so that correctness doesn't depend on turns.

mod api;
mod backup;
pub mod class;
pub mod config;
mod counts;
mod equality;
mod error;
mod function;
mod grid;
mod header_list;
mod invocation;
mod metrics;
pub mod node;
mod object_change;
mod object_id;
mod once;
pub mod outbox;
mod peer_api;
mod record;
pub mod replica;
mod replicated_node;
mod routed;
mod scrape;
mod static_text;
mod status;
mod stored_event;
mod turns;
mod watched_file;

pub use api::router;
pub use error::Error;
pub use grid::Grid;
pub use invocation::{Expected, Invocation, Object, ObjectPage, Outcome};
pub use object_id::ObjectId;
pub use watched_file::WatchedFile;
