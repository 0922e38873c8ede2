//! The data grid of a class: stores its objects, and calls their methods.
//!
//! The state of an object travels with a call: its function gets the state and returns the new one.
//! Calls of one object take turns. A change, and the result for an idempotency key, are one transaction
//! that fails if anything else has changed the object, so that correctness doesn't depend on turns.

mod active_runs;
mod api;
mod backup;
mod call_token;
mod caller;
pub mod class;
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
mod header_list;
mod http_client;
mod invocation;
mod macros;
mod member;
#[cfg(test)]
mod member_tests;
mod method_call;
mod metrics;
pub mod node;
mod node_parts;
mod object_change;
mod object_id;
mod object_stream;
mod once;
mod other_grid;
pub mod outbox;
mod partition;
mod peer_api;
mod record;
mod references;
pub mod replica;
mod replicated_node;
mod results;
mod routed;
mod scrape;
mod static_text;
mod status;
mod stored_event;
mod trigger_call;
mod turns;
mod watched_file;

pub use api::router;
pub use call_token::CallTokens;
pub use error::Error;
pub use grid::Grid;
pub use grpc::object_service;
pub use invocation::{CallOrigin, Expected, Invocation, Object, ObjectBatch, ObjectPage, Outcome};
pub use object_id::ObjectId;
pub use object_stream::{DeletedObject, WatchEvent};
pub use references::{Resolved, Unresolved};
pub use watched_file::WatchedFile;

/// For the results of long suites.
#[cfg(test)]
fn workspace() -> std::path::PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../..").into()
}
