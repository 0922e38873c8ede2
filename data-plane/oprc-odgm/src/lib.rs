//! The data grid of a class: stores its objects, and calls their methods.
//!
//! The state of an object travels with a call: its function gets the state and returns the new one.
//! Calls of one object take turns. A change, and the result for an idempotency key, are one transaction
//! that fails if anything else has changed the object, so that correctness doesn't depend on turns.

mod active_runs;
mod api;
mod call_token;
mod caller;
pub mod class;
mod class_file;
mod concurrency;
pub mod config;
mod counts;
mod detached;
mod equality;
mod error;
mod event_waiters;
mod function;
mod grid;
mod grpc;
mod http_client;
mod invocation;
mod macros;
mod method_call;
pub mod node;
mod object_change;
mod object_id;
mod object_stream;
mod once;
mod other_grid;
pub mod outbox;
mod record;
mod references;
mod results;
mod status;
mod stored_event;
mod trigger_call;
mod turns;

pub use api::router;
pub use call_token::CallTokens;
pub use class_file::ClassFile;
pub use error::Error;
pub use grid::Grid;
pub use grpc::object_service;
pub use invocation::{CallOrigin, Expected, Invocation, Object, ObjectBatch, ObjectPage, Outcome};
pub use object_id::ObjectId;
pub use object_stream::{DeletedObject, WatchEvent};
pub use references::{Resolved, Unresolved};

/// For the results of long suites.
#[cfg(test)]
fn workspace() -> std::path::PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../..").into()
}
