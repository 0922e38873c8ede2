//! A small transactional store: entries with versions, compare-and-set over several of them at
//! once, ranges, watches without gaps, and one process that drives.
//!
//! A [`Store`] stands over memory, a redb file or etcd, which all behave in the same way. What is
//! acknowledged is stored: neither a `kill -9` nor, with a file or etcd, a machine that fails loses
//! it.
//!
//! A reader that follows a store lists it, watches from the revision that it got, and begins anew
//! when the watch ends with [`Error::Gap`].

mod backend;
mod change;
mod entry;
mod error;
mod etcd;
mod history;
mod key;
mod memory;
mod owners;
mod ownership;
mod redb;
mod store;
mod transaction;
mod watch;

#[cfg(any(test, feature = "suite"))]
pub mod suite;
#[cfg(test)]
mod tests;

pub use backend::Backend;
pub use change::{Change, Commit};
pub use entry::{Entry, Page, Revision};
pub use error::{Error, Result};
pub use etcd::{EtcdOptions, EtcdTls, Login, Password};
pub use ownership::{Fence, Ownership};
pub use redb::RedbOptions;
pub use store::{DEADLINE, Store};
pub use transaction::{Check, MAX_BYTES, MAX_OPERATIONS, Transaction};
pub use watch::Watch;
