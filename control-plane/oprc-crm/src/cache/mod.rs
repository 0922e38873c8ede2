//! Caches of the cluster, kept current by watches.
//!
//! kube's `Controller` and `reflector` aren't used here. CRM keeps a small projection of each
//! object instead of the object; it takes the response of a write at once and keeps tombstones, so
//! that a late response can't resurrect what a watch has already reported deleted; it checks
//! leadership before each write; and every watch feeds one queue of ClassRuntimes, whichever kind
//! changed.

mod api_health;
mod index;
mod key;
mod nodes;
mod optional_apis;
mod pods;
mod store;
mod watch;
mod workqueue;

pub(crate) use self::watch::{RELIST_DELAY, is_expired};
pub use self::{
    api_health::{ApiHealth, client, probe},
    index::Changed,
    key::{Key, Known},
    nodes::{Node, Nodes},
    optional_apis::Detected,
    pods::{OomKill, PodRecord},
    store::{Cache, Start},
    watch::{Watches, backoff},
    workqueue::WorkQueue,
};
