//! A node of the grid: its store, its servers and its background tasks.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use oprc_cp_storage::{RedbOptions, Store};
use oprc_server::stopped;
use tokio::{sync::watch, task::JoinSet};

use crate::{
    Grid, WatchedFile,
    config::Config,
    node_parts::{NodeParts, Servers, read_class, set_live, set_ready},
    replicated_node::{PreparedReplica, ReplicatedNode},
};

/// A node that has opened its ports. The only node of a grid has opened its store, too.
pub struct Node {
    servers: Servers,
    parts: NodeParts,
    store: NodeStore,
}

enum NodeStore {
    Single(Store),
    Replicated(Box<PreparedReplica>),
}

impl Node {
    /// An error is one line.
    pub async fn open(config: Config, host: IpAddr) -> Result<Self, String> {
        let file = WatchedFile::open(&config.class_file)
            .map_err(|error| format!("ODGM_CLASS_FILE={}: {error}", config.class_file.display()))?;
        let mut class = read_class(&file)?;
        class.collections = config.collections.iter().map(|it| it.name.clone()).collect();
        let servers = Servers::bind(&config, host).await?;
        let (store, cluster) = match &config.replica {
            Some(replica) => {
                let prepared = PreparedReplica::open(&config, replica, host).await?;
                let cluster = prepared.cluster.clone();
                (NodeStore::Replicated(Box::new(prepared)), Some(cluster))
            }
            None => (NodeStore::Single(open_store(&config).await?), None),
        };
        let parts = NodeParts::new(config, host, class, file, cluster);
        if let NodeStore::Single(store) = &store {
            let grid = Grid::open(store.clone(), parts.class.clone()).await;
            parts.serve_grid(grid.map_err(|error| error.to_string())?);
        }
        Ok(Self { servers, parts, store })
    }

    pub fn address(&self) -> SocketAddr {
        self.servers.internal.local_addr()
    }

    /// Where callers from outside of the cluster are served.
    pub fn public_address(&self) -> SocketAddr {
        self.servers.public.local_addr()
    }

    /// Where operators are served.
    pub fn admin_address(&self) -> SocketAddr {
        self.servers.admin.local_addr()
    }

    /// Serves until `shutdown`. Must be called on a thread that lives as long as the process if the node
    /// has an etcd. Fails if that ends.
    pub async fn run(
        self,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), String> {
        let Self { servers, parts, store } = self;
        match store {
            NodeStore::Single(store) => {
                run_single(servers, parts, store, shutdown).await;
                Ok(())
            }
            NodeStore::Replicated(prepared) => {
                ReplicatedNode { servers, parts, prepared: *prepared }.run(shutdown).await
            }
        }
    }
}

async fn open_store(config: &Config) -> Result<Store, String> {
    if !config.is_persistent() {
        return Ok(Store::memory());
    }
    let options = RedbOptions::new(config.data_dir.join("grid.redb"), &config.node_id);
    Store::redb(options).await.map_err(|error| error.to_string())
}

async fn run_single(
    servers: Servers,
    parts: NodeParts,
    store: Store,
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    let (mut tasks, mut serving) = (JoinSet::new(), JoinSet::new());
    let health = parts.health();
    set_live(&health).await;
    set_ready(&health, true).await;
    let stop = watch::Sender::new(false);
    servers.serve(&parts, &mut serving, || stopped(stop.subscribe()));
    parts.start_tasks(&mut tasks);
    shutdown.await;
    set_ready(&health, false).await;
    stop.send_replace(true);
    while serving.join_next().await.is_some() {}
    tasks.shutdown().await;
    store.close().await;
}

/// Where a node listens: outside of a container only on this machine.
pub fn host(is_contained: bool) -> IpAddr {
    if is_contained { Ipv4Addr::UNSPECIFIED.into() } else { Ipv4Addr::LOCALHOST.into() }
}
