//! What is known of the cluster: caches that watches keep, and whether they can be believed.

mod cache;
mod contact;
mod nodes;
mod watch;

pub use self::{
    cache::{Begin, Cache, Changed, Key},
    contact::{Contact, Counted, client},
    nodes::Nodes,
    watch::{Watches, backoff},
};
