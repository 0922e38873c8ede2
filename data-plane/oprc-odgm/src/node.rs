//! A node of the grid: its store, its servers and its background tasks.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::{
    Router,
    extract::Request,
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::get,
};
use oprc_cp_storage::{RedbOptions, Store};
use oprc_grpc::odgm::data_service_server::DataServiceServer;
use oprc_server::{Options, Server, TlsFiles, bind, fallback, problem};
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};
use tonic::service::Routes;
use tonic_health::{ServingStatus, server::HealthReporter};
use tower::ServiceExt as _;

use crate::{
    Grid, WatchedFile, backup,
    class::{Access, Class},
    config::Config,
    outbox::Outbox,
    record::objects_prefix,
    replica::cluster::Cluster,
    replicated_node::{PreparedReplica, ReplicatedNode},
    router, scrape,
    status::StatusService,
};

const FORGET_INTERVAL: Duration = Duration::from_mins(1);
const MAX_HEALTH_MESSAGE: usize = 1024;

/// A node that has opened its ports. The only node of a grid has opened its store, too.
pub struct Node {
    server: Server,
    parts: NodeParts,
    store: NodeStore,
}

enum NodeStore {
    Single(Store),
    Replicated(Box<PreparedReplica>),
}

/// What all nodes have.
pub(crate) struct NodeParts {
    pub(crate) config: Config,
    pub(crate) host: IpAddr,
    pub(crate) class: Class,
    file: WatchedFile,
    health: HealthReporter,
    router: Router,
    /// Empty until the store is open.
    pub(crate) grid: Arc<OnceLock<Grid>>,
    data_router: Arc<OnceLock<Router>>,
}

impl Node {
    /// An error is one line.
    pub async fn open(config: Config, host: IpAddr) -> Result<Self, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let file = WatchedFile::open(&config.class_file)
            .map_err(|error| format!("ODGM_CLASS_FILE={}: {error}", config.class_file.display()))?;
        let mut class = read_class(&file)?;
        class.collections = config.collections.iter().map(|it| it.name.clone()).collect();
        let server = bind(options(SocketAddr::new(host, config.http_port), None));
        let server = server.await.map_err(|error| text(&error))?;
        let store = match &config.replica {
            Some(replica) => {
                let prepared = PreparedReplica::open(&config, replica, host).await?;
                NodeStore::Replicated(Box::new(prepared))
            }
            None => NodeStore::Single(open_store(&config).await?),
        };
        let cluster = match &store {
            NodeStore::Replicated(prepared) => Some(prepared.cluster.clone()),
            NodeStore::Single(_) => None,
        };
        let parts = NodeParts::new(config, host, class, file, cluster);
        if let NodeStore::Single(store) = &store {
            let grid = Grid::open(store.clone(), parts.class.clone()).await;
            parts.serve_grid(grid.map_err(|error| text(&error))?);
        }
        Ok(Self { server, parts, store })
    }

    pub fn address(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Serves until `shutdown`. Must be called on a thread that lives as long as the process if the node
    /// has an etcd. Fails if that ends.
    pub async fn run(
        self,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), String> {
        let Self { server, parts, store } = self;
        match store {
            NodeStore::Single(store) => {
                run_single(server, parts, store, shutdown).await;
                Ok(())
            }
            NodeStore::Replicated(prepared) => {
                ReplicatedNode { server, parts, prepared: *prepared }.run(shutdown).await
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
    server: Server,
    parts: NodeParts,
    store: Store,
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    let mut tasks = JoinSet::new();
    let router = parts.router();
    let health = parts.health.clone();
    parts.start_tasks(&mut tasks);
    set_live(&health).await;
    set_ready(&health, true).await;
    let until = async move {
        shutdown.await;
        set_ready(&health, false).await;
    };
    server.serve(router, until).await;
    tasks.shutdown().await;
    store.close().await;
}

impl NodeParts {
    fn new(
        config: Config,
        host: IpAddr,
        class: Class,
        file: WatchedFile,
        cluster: Option<Arc<Cluster>>,
    ) -> Self {
        let grid = Arc::new(OnceLock::new());
        let data_router = Arc::new(OnceLock::new());
        let (health, health_service) = tonic_health::server::health_reporter();
        let status = StatusService { config: config.clone(), grid: grid.clone(), cluster };
        let grpc = Routes::new(health_service.max_decoding_message_size(MAX_HEALTH_MESSAGE))
            .add_service(DataServiceServer::new(status))
            .into_axum_router()
            .reset_fallback();
        let late_router = data_router.clone();
        let router = grpc
            .route("/livez", get(async || "ok"))
            .fallback(move |request: Request| serve_data(late_router, request));
        Self { config, host, class, file, health, router, grid, data_router }
    }

    pub(crate) fn router(&self) -> Router {
        self.router.clone()
    }

    pub(crate) fn health(&self) -> HealthReporter {
        self.health.clone()
    }

    /// Serves the objects of a grid from now on.
    pub(crate) fn serve_grid(&self, grid: Grid) {
        let backup = backup::router(grid.clone());
        let metrics = scrape::router(grid.clone());
        let router =
            router(grid.clone(), Access::Internal).merge(backup).merge(metrics).fallback(fallback);
        // Both are set once.
        let _ = self.grid.set(grid);
        let _ = self.data_router.set(router);
    }

    /// Starts what the open grid needs.
    pub(crate) fn start_tasks(self, tasks: &mut JoinSet<()>) {
        let Some(grid) = self.grid.get().cloned() else { return };
        tasks.spawn(Outbox::new(grid.clone()).run());
        tasks.spawn(follow_class(grid.clone(), self.file));
        tasks.spawn(resume_macros(grid.clone()));
        tasks.spawn(forget_results(grid));
    }
}

/// Serves objects once the store is open.
async fn serve_data(router: Arc<OnceLock<Router>>, request: Request) -> Response {
    match router.get() {
        Some(router) => router.clone().oneshot(request).await.into_response(),
        None => {
            let detail = "the node has not joined its grid yet";
            problem(StatusCode::SERVICE_UNAVAILABLE, detail).into_response()
        }
    }
}

pub(crate) fn options(address: SocketAddr, tls: Option<TlsFiles>) -> Options {
    Options {
        address,
        tls,
        max_connections: 10_000,
        handshake_timeout: Duration::from_secs(10),
        header_timeout: Duration::from_secs(30),
        max_streams: 1000,
        drain_timeout: Duration::from_secs(20),
    }
}

/// Where a node listens: outside of a container only on this machine.
pub fn host(is_contained: bool) -> IpAddr {
    if is_contained { Ipv4Addr::UNSPECIFIED.into() } else { Ipv4Addr::LOCALHOST.into() }
}

/// The process works, even if it can't serve requests.
pub(crate) async fn set_live(health: &HealthReporter) {
    health.set_service_status("live", ServingStatus::Serving).await;
}

pub(crate) async fn set_ready(health: &HealthReporter, is_ready: bool) {
    let status = if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing };
    for service in ["", "odgm", "ready"] {
        health.set_service_status(service, status).await;
    }
}

fn read_class(file: &WatchedFile) -> Result<Class, String> {
    let class: Class = file.read()?;
    class.validate()?;
    Ok(class)
}

/// Continues the runs of macros that a crash interrupted: now, and when partitions were taken over.
async fn resume_macros(grid: Grid) {
    let mut gains = grid.replica().map(|it| it.ownership.gains());
    loop {
        let is_own =
            |collection: &str, id: &str| grid.owns(&format!("{}{id}", objects_prefix(collection)));
        if let Err(error) = grid.resume_macros(is_own).await {
            tracing::warn!(%error, "cannot read the runs of macros");
        }
        let Some(gains) = &mut gains else { return };
        if gains.changed().await.is_err() {
            return;
        }
    }
}

/// Methods and triggers change without a restart, the collections don't.
async fn follow_class(grid: Grid, mut file: WatchedFile) {
    loop {
        if let Err(error) = file.changed().await {
            tracing::error!(%error, "the file about the class is no longer followed");
            return;
        }
        match read_class(&file) {
            Ok(class) => {
                let collections = grid.class().collections.clone();
                grid.set_class(Class { collections, ..class });
                tracing::info!("the definition of the class has changed");
            }
            Err(error) => tracing::warn!(error, "the definition of the class is kept"),
        }
    }
}

async fn forget_results(grid: Grid) {
    let mut ticks = interval(FORGET_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if grid.replica().is_some_and(|it| !it.cluster.is_leader()) {
            continue;
        }
        if let Err(error) = grid.forget_results().await {
            tracing::warn!(%error, "cannot delete old results, trying again");
        }
    }
}
