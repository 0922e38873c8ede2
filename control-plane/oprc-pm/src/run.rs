//! The process: binds, opens the store, wires the layers and runs them.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use oprc_cp_storage::{Error as StoreError, Lease, RedbOptions, Store};
use oprc_server::{Access, Server, identity, stopped};
use tokio::sync::{Semaphore, watch};

use crate::{
    api::{self, App, Metrics},
    config::{ClusterConfig, Config, StoreConfig},
    crm_client::Clusters,
    dispatcher::{CallBackoff, Dispatcher, EventLog, IN_DOUBT},
    planner::Defaults,
    registry::Registry,
    rollout::Deadlines,
    service::{DeploymentService, PackageLocks},
    state::{Cache, check_format},
};

/// The lease of the one process that owns a store.
const LEASE: &str = "pm";

/// Bound to its port and owning its store, but not serving yet.
pub struct Pm {
    config: Config,
    server: Server,
    access: Access,
    store: Store,
    lease: Arc<Lease>,
}

impl Pm {
    /// Binds the port, reads certificates and tokens, opens the store, takes its lease and checks
    /// its format, so that errors of any of these are reported at the start.
    pub async fn bind(config: Config) -> anyhow::Result<Self> {
        if config.clusters.is_empty() {
            tracing::warn!("no cluster is configured: packages can be published, not deployed");
        }
        let (server, access) = config.server.bind().await?;
        let identity = format!("{} (process {})", identity("oprc-pm"), std::process::id());
        let store = open(&config.store, &identity).await?;
        let lease = match store.acquire_lease(LEASE, &identity).await {
            Ok(lease) => lease,
            Err(StoreError::LeaseHeld { holder, .. }) => {
                anyhow::bail!("the store is owned by {holder}: stop that process first");
            }
            Err(error) => return Err(error).context("cannot take the lease of the store"),
        };
        if let Err(error) = check_format(&store, &lease).await {
            // Otherwise the next start would report that this process owns the store.
            lease.release().await;
            return Err(error);
        }
        Ok(Self { config, server, access, store, lease: Arc::new(lease) })
    }

    pub fn address(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Runs until `shutdown`, or until the lease on the store is lost.
    pub async fn run(
        self,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> anyhow::Result<()> {
        let Self { config, server, access, store, lease } = self;
        let options = Options {
            clusters: config.clusters,
            crm_deadline: config.crm_deadline,
            in_doubt: IN_DOUBT,
            deadlines: Deadlines {
                progress: config.progress_deadline,
                unreachable: config.unreachable_deadline,
            },
            defaults: Defaults { environment: config.default_environment },
        };
        let Components { deployments, dispatcher } =
            Components::assemble(&store, &lease, options).await?;
        let driving = drive(Arc::clone(&deployments), dispatcher);
        let (stop, stopping) = watch::channel(false);
        let app = App {
            registry: deployments.registry.clone(),
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
        let stop_on_shutdown = async {
            shutdown.await;
            stop.send_replace(true);
        };
        let ended = tokio::select! {
            _ = async { tokio::join!(stop_on_shutdown, serve) } => Ok(()),
            () = lease.lost() => {
                Err(anyhow::anyhow!(
                    "lost the lease on the store, which another process may own now: exiting"
                ))
            }
            () = driving => Err(anyhow::anyhow!("the dispatcher ended")),
        };
        // Released, so that the next process needn't wait for the lease to expire.
        if let Some(lease) = Arc::into_inner(lease) {
            lease.release().await;
        }
        store.close().await;
        ended
    }
}

/// What [`Components`] are configured with.
pub(crate) struct Options {
    pub(crate) clusters: Vec<ClusterConfig>,
    pub(crate) crm_deadline: Duration,
    /// How long an unanswered call leaves a unit's state in doubt.
    pub(crate) in_doubt: Duration,
    pub(crate) deadlines: Deadlines,
    pub(crate) defaults: Defaults,
}

/// A package manager without its API.
pub(crate) struct Components {
    pub(crate) deployments: Arc<DeploymentService>,
    pub(crate) dispatcher: Dispatcher,
}

impl Components {
    /// Loads the store and wires everything that works on it.
    pub(crate) async fn assemble(
        store: &Store,
        lease: &Arc<Lease>,
        options: Options,
    ) -> anyhow::Result<Self> {
        let cache = Cache::load(store.clone()).await.context("cannot load the store")?;
        let cache = Arc::new(cache);
        let clusters = Arc::new(Clusters::new(options.clusters, options.crm_deadline));
        let call_backoff = Arc::new(CallBackoff::new(options.in_doubt));
        let events = Arc::new(EventLog::default());
        let dispatcher = Dispatcher {
            lease: Arc::clone(lease),
            cache: Arc::clone(&cache),
            clusters: Arc::clone(&clusters),
            call_backoff: Arc::clone(&call_backoff),
            events: Arc::clone(&events),
            deadlines: options.deadlines,
        };
        let deployments = Arc::new(DeploymentService {
            lease: Arc::clone(lease),
            registry: Registry::new(Arc::clone(&cache)),
            cache,
            clusters,
            call_backoff,
            events,
            defaults: options.defaults,
            package_locks: PackageLocks::default(),
        });
        Ok(Self { deployments, dispatcher })
    }
}

/// Follows the store and the clusters, and drives the clusters to the stored state. Never returns.
pub(crate) async fn drive(deployments: Arc<DeploymentService>, dispatcher: Dispatcher) {
    tokio::join!(deployments.cache.follow(), deployments.clusters.run(), dispatcher.run());
}

async fn open(config: &StoreConfig, identity: &str) -> anyhow::Result<Store> {
    match config {
        StoreConfig::Memory => {
            tracing::warn!(
                "store.kind is memory: packages and deployments are lost when the process ends"
            );
            Ok(Store::memory())
        }
        StoreConfig::Redb { path, cache_bytes, deadline } => {
            let options = RedbOptions {
                cache_bytes: *cache_bytes,
                deadline: *deadline,
                ..RedbOptions::new(path, identity)
            };
            Store::redb(options)
                .await
                .with_context(|| format!("cannot open the store {}", path.display()))
        }
        StoreConfig::Etcd(options) => {
            Store::etcd(options.clone()).await.context("cannot open the store in etcd")
        }
    }
}
