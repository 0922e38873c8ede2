//! What is known of the cluster: caches that watches keep, and whether they can be believed.

mod book;
mod cache;
mod contact;
mod dirty;
mod nodes;
mod watch;

pub(crate) use self::watch::{ANEW, is_expired};
pub use self::{
    cache::{Begin, Cache, Changed, Key, Known},
    contact::{Contact, Counted, client, probe},
    dirty::Dirty,
    nodes::Nodes,
    watch::{Watches, backoff},
};
