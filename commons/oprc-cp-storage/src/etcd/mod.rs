//! The etcd back end.
//!
//! The client is generated from the part of etcd's API that is needed. docs/architecture.md gives
//! the reasons for not using the crate `etcd-client`.

mod admin;
mod auth;
mod call;
mod connect;
mod lease;
mod options;
mod read;
mod status;
mod tls;
mod watch;
mod write;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;

pub use admin::{EtcdAdmin, EtcdMember, EtcdStatus};
pub use options::{EtcdOptions, EtcdTls, Login, Password};

use crate::{Backend, Entry, Error, Lease, Page, Result, Revision, Snapshot, Transaction, Watch};
use auth::Auth;
use connect::Endpoints;

#[allow(unreachable_pub, clippy::enum_variant_names, clippy::pedantic)]
mod api {
    tonic::include_proto!("etcdserverpb");
}

/// Shares the client with background tasks.
pub(crate) struct Etcd(Arc<Client>);

struct Client {
    endpoints: Endpoints,
    auth: Option<Auth>,
    /// The prefix of all keys.
    root: String,
    deadline: Duration,
    lease_ttl: Duration,
}

impl Client {
    /// The etcd key of a key or prefix.
    fn key(&self, key: &str) -> Bytes {
        format!("{}/data/{key}", self.root).into()
    }

    /// The reverse of [`Client::key`].
    fn strip_root(&self, key: &[u8]) -> Result<String> {
        let root = self.key("");
        key.strip_prefix(root.as_ref())
            .and_then(|own| std::str::from_utf8(own).ok())
            .map(str::to_owned)
            .ok_or_else(|| Error::corrupt("etcd returned a key outside of the root"))
    }

    /// The key that names the holder of a lease.
    fn owner_key(&self, name: &str) -> Bytes {
        format!("{}/owner/{name}", self.root).into()
    }
}

impl Etcd {
    pub(crate) async fn open(options: EtcdOptions) -> Result<Self> {
        options.check()?;
        let client = Client {
            endpoints: Endpoints::new(&options)?,
            auth: options.login.map(Auth::new),
            root: options.root,
            deadline: options.deadline,
            lease_ttl: options.lease_ttl,
        };
        // Fails early if etcd is unreachable or denies access.
        client.revision().await?;
        Ok(Self(Arc::new(client)))
    }
}

#[async_trait]
impl Backend for Etcd {
    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        self.0.get(key).await
    }

    async fn get_many(&self, keys: &[String]) -> Result<Vec<Option<Entry>>> {
        self.0.get_many(keys, false).await
    }

    async fn get_many_stale(&self, keys: &[String]) -> Result<Vec<Option<Entry>>> {
        self.0.get_many(keys, true).await
    }

    async fn get_stale(&self, key: &str) -> Result<Option<Entry>> {
        self.0.get_stale(key).await
    }

    async fn count(&self, prefix: &str) -> Result<u64> {
        self.0.count(prefix).await
    }

    async fn snapshot(&self) -> Result<Snapshot> {
        let revision = self.0.revision().await?;
        Ok(Snapshot::new(revision, read::EtcdSnapshot { client: self.0.clone(), revision }))
    }

    async fn range(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        self.0.range(prefix, after, limit).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Revision> {
        self.0.commit(transaction).await
    }

    async fn watch(&self, prefix: &str, after: Option<Revision>) -> Result<Watch> {
        watch::begin(self.0.clone(), prefix, after).await
    }

    async fn acquire_lease(&self, name: &str, identity: &str) -> Result<Lease> {
        lease::acquire(self.0.clone(), name, identity).await
    }

    /// Connections close with the last watch and lease.
    async fn close(&self) {}
}

/// etcd's revisions are never negative.
fn revision(number: i64) -> Revision {
    Revision(u64::try_from(number).unwrap_or_default())
}

/// The revision of the store at the time of a response.
fn header_revision(header: Option<api::ResponseHeader>) -> Revision {
    revision(header.map_or(0, |header| header.revision))
}

fn number(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

/// The exclusive end of the range of a prefix: the prefix with its last byte incremented. UTF-8
/// never ends in the byte 255.
fn end_of(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end.into()
}
