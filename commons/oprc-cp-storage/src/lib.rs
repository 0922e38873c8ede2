//! A small transactional store: versioned entries, compare-and-set over several entries, ranges,
//! watches without gaps, and leases with fencing.
//!
//! A [`Store`] is backed by memory, a redb file or etcd, which all behave the same. With a file or
//! etcd, acknowledged writes survive `kill -9` and a machine failure.
//!
//! A reader lists the store, watches from the revision of the list, and lists again when the watch
//! ends with [`Error::Gap`].

mod backend;
mod change;
mod entry;
mod error;
mod etcd;
mod fence;
mod history;
mod key;
mod lease;
mod local_owners;
mod memory;
mod redb;
mod snapshot;
mod store;
mod transaction;
mod watch;

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
#[cfg(test)]
mod tests;

pub use backend::{Backend, DEFAULT_DEADLINE};
pub use change::{Change, Commit};
pub use entry::{Entry, Page, Revision};
pub use error::{Error, Result};
pub use etcd::{EtcdAdmin, EtcdMember, EtcdOptions, EtcdStatus, EtcdTls, Login, Password};
pub use fence::Fence;
pub use lease::Lease;
pub use redb::RedbOptions;
pub use snapshot::Snapshot;
pub use store::Store;
pub use transaction::{Check, MAX_BYTES, MAX_OPERATIONS, Transaction};
pub use watch::Watch;
