//! The process: everything wired together, startable many times in one process for tests.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use oprc_cp_storage::{Error as StoreError, Ownership, RedbOptions, Store};
use oprc_server::{Access, Server, identity, stopped};
use tokio::sync::{Semaphore, watch};

use crate::{
    api::{self, App, Metrics},
    clusters::Clusters,
    config::{Config, StoreConfig},
    deployments::{Book, Deployments, Events, Turns},
    dispatcher::{Dispatcher, Limits, Troubles, UNSURE},
    planner::Defaults,
    registry::Registry,
};

/// What is owned by the one process that drives a store.
const DRIVES: &str = "pm";

/// A package manager that listens, drives its store, and hasn't begun to serve.
pub struct Pm {
    config: Config,
    server: Server,
    access: Access,
    store: Store,
    ownership: Arc<Ownership>,
}

impl Pm {
    /// Takes its port, reads its certificates and tokens, opens its store, and makes sure that
    /// nobody else drives that: what is wrong with any of these is known now.
    pub async fn bind(config: Config) -> anyhow::Result<Self> {
        if config.clusters.is_empty() {
            tracing::warn!("no cluster is configured: packages can be published, not deployed");
        }
        let (server, access) = config.server.bind().await?;
        let identity = format!("{} (process {})", identity("oprc-pm"), std::process::id());
        let store = open(&config.store, &identity).await?;
        let ownership = match store.own(DRIVES, &identity).await {
            Ok(ownership) => Arc::new(ownership),
            Err(StoreError::Owned { by, .. }) => {
                anyhow::bail!("the store is driven by {by}, and one process drives a store");
            }
            Err(error) => return Err(error).context("the store"),
        };
        Ok(Self { config, server, access, store, ownership })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Serves and drives until it is told to stop, or another process drives the store.
    pub async fn run(
        self,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> anyhow::Result<()> {
        let Self { config, server, access, store, ownership } = self;
        let registry = Registry::new(store.clone()).await.context("the packages of the store")?;
        let book = Arc::new(Book::read(&store).await.context("the deployments of the store")?);
        let clusters =
            Arc::new(Clusters::new(config.clusters.iter().cloned(), config.crm_deadline));
        let troubles = Arc::new(Troubles::new(UNSURE));
        let events = Arc::new(Events::default());
        let dispatcher = Dispatcher {
            store: store.clone(),
            ownership: Arc::clone(&ownership),
            book: Arc::clone(&book),
            clusters: Arc::clone(&clusters),
            troubles: Arc::clone(&troubles),
            events: Arc::clone(&events),
            limits: Limits {
                progress: millis(config.progress_deadline),
                away: millis(config.unreachable_deadline),
            },
        };
        let deployments = Arc::new(Deployments {
            store: store.clone(),
            ownership: Arc::clone(&ownership),
            book: Arc::clone(&book),
            registry: registry.clone(),
            clusters: Arc::clone(&clusters),
            troubles,
            events,
            defaults: Defaults { environment: config.default_environment.clone() },
            turns: Turns::default(),
        });
        let (stop, stopping) = watch::channel(false);
        let app = App {
            registry,
            deployments,
            metrics: Arc::new(Metrics::default()),
            streams: Arc::new(Semaphore::new(config.limits.streams)),
            stopping: stopping.clone(),
        };
        let options = api::Options {
            access,
            limits: config.limits,
            cors_origins: config.cors_origins,
            docs: config.docs,
        };
        let serve = server.serve(api::router(app, options), stopped(stopping));
        let stop_when_told = async {
            shutdown.await;
            stop.send_replace(true);
        };
        let ended = tokio::select! {
            _ = async { tokio::join!(stop_when_told, serve) } => Ok(()),
            () = ownership.lost() => {
                Err(anyhow::anyhow!(
                    "the lease on the store wasn't renewed in time, and another process may drive \
                     it now: this one ends"
                ))
            }
            () = async { tokio::join!(book.follow(&store), clusters.run(), dispatcher.run()); } => {
                Err(anyhow::anyhow!("what drives the clusters has ended"))
            }
        };
        // The next process needn't wait for a lease to end.
        drop(dispatcher);
        if let Some(ownership) = Arc::into_inner(ownership) {
            ownership.release().await;
        }
        store.close().await;
        ended
    }
}

async fn open(config: &StoreConfig, identity: &str) -> anyhow::Result<Store> {
    match config {
        StoreConfig::Memory => {
            tracing::warn!(
                "store.kind is memory: what is published and deployed is lost at the end"
            );
            Ok(Store::memory())
        }
        StoreConfig::Redb { path, cache_bytes, deadline } => {
            let options = RedbOptions {
                cache_bytes: *cache_bytes,
                deadline: *deadline,
                ..RedbOptions::new(path, identity)
            };
            Store::redb(options).await.with_context(|| format!("the store {}", path.display()))
        }
        StoreConfig::Etcd(options) => {
            Store::etcd(options.clone()).await.context("the store in etcd")
        }
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
