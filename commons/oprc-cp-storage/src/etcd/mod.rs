//! A store in an etcd.
//!
//! The client is generated from the few messages of etcd's API that are needed: etcd-client brings
//! all of them, and its build script wants a protoc on the machine, with every `cargo build`.

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

pub use options::{EtcdOptions, EtcdTls, Login, Password};

use crate::{Backend, Entry, Error, Ownership, Page, Result, Revision, Transaction, Watch};
use auth::Auth;
use connect::Endpoints;

/// Generated.
#[allow(missing_docs, unreachable_pub, clippy::enum_variant_names, clippy::pedantic)]
mod api {
    tonic::include_proto!("etcdserverpb");
}

/// A store in an etcd.
pub(crate) struct Etcd {
    client: Arc<Client>,
}

/// What calls need, those in the background too.
struct Client {
    endpoints: Endpoints,
    auth: Option<Auth>,
    /// All keys begin with it.
    root: String,
    deadline: Duration,
    /// How long an owner that is cut off or dead stays the owner.
    lease: Duration,
}

impl Client {
    /// The key of an entry, or how keys begin.
    fn key(&self, key: &str) -> Bytes {
        format!("{}/data/{key}", self.root).into()
    }

    /// The key that an entry has in etcd without what all keys begin with.
    fn own_key(&self, key: &[u8]) -> Result<String> {
        let root = self.key("");
        key.strip_prefix(root.as_ref())
            .and_then(|own| std::str::from_utf8(own).ok())
            .map(str::to_owned)
            .ok_or_else(|| Error::corrupt("etcd has a key that isn't ours"))
    }

    /// The key that says who owns something.
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
            lease: options.lease,
        };
        // Now rather than later: whether it is there and lets us in.
        client.revision().await?;
        Ok(Self { client: Arc::new(client) })
    }
}

#[async_trait]
impl Backend for Etcd {
    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        self.client.get(key).await
    }

    async fn range(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        self.client.range(prefix, after, limit).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Revision> {
        self.client.commit(transaction).await
    }

    async fn watch(&self, prefix: &str, after: Option<Revision>) -> Result<Watch> {
        watch::begin(self.client.clone(), prefix, after).await
    }

    async fn own(&self, name: &str, identity: &str) -> Result<Ownership> {
        lease::own(self.client.clone(), name, identity).await
    }

    /// Nothing is held open but connections, which go with the last watch and ownership.
    async fn close(&self) {}
}

/// A revision as etcd tells it: never negative.
fn revision(number: i64) -> Revision {
    Revision(u64::try_from(number).unwrap_or_default())
}

/// The other way round.
fn number(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

/// The end of what begins with a prefix: the prefix with its last byte one higher, excluded. Ours
/// end in UTF-8, which has no byte 255.
fn end_of(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end.into()
}
