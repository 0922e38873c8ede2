//! What all nodes have: their servers, their health, and the tasks of an open grid.

use std::{
    net::{IpAddr, SocketAddr},
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
use oprc_grpc::odgm::data_service_server::DataServiceServer;
use oprc_server::{Options, Server, TlsFiles, bind, fallback, problem};
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep},
};
use tonic::service::Routes;
use tonic_health::{ServingStatus, server::HealthReporter};
use tower::ServiceExt as _;

use crate::{
    Grid, WatchedFile, backup,
    class::{Access, Class},
    config::Config,
    object_service,
    outbox::Outbox,
    record::objects_prefix,
    replica::cluster::Cluster,
    router, scrape,
    status::StatusService,
};

const FORGET_INTERVAL: Duration = Duration::from_mins(1);
const RESUME_DELAY: Duration = Duration::from_secs(1);
const MAX_HEALTH_MESSAGE: usize = 1024;

/// The ports for callers.
pub(crate) struct Servers {
    /// For workloads of the cluster.
    pub(crate) internal: Server,
    /// For others.
    pub(crate) public: Server,
    /// For operators, who may forward ports of the pod.
    pub(crate) admin: Server,
}

/// Routes that are known when the store is open.
type LateRouter = Arc<OnceLock<Router>>;

pub(crate) struct NodeParts {
    pub(crate) config: Config,
    pub(crate) host: IpAddr,
    pub(crate) class: Class,
    file: WatchedFile,
    health: HealthReporter,
    router: Router,
    /// Empty until the store is open.
    pub(crate) grid: Arc<OnceLock<Grid>>,
    internal: LateRouter,
    public: LateRouter,
    admin: LateRouter,
}

impl Servers {
    pub(crate) async fn bind(config: &Config, host: IpAddr) -> Result<Self, String> {
        let open =
            async |address| bind(options(address, None)).await.map_err(|error| error.to_string());
        Ok(Self {
            internal: open(SocketAddr::new(host, config.http_port)).await?,
            public: open(SocketAddr::new(host, config.public_port)).await?,
            admin: open(config.admin_address).await?,
        })
    }

    /// Serves until the futures that `until` returns resolve.
    pub(crate) fn serve<F: Future<Output = ()> + Send + 'static>(
        self,
        parts: &NodeParts,
        serving: &mut JoinSet<()>,
        until: impl Fn() -> F,
    ) {
        serving.spawn(self.internal.serve(parts.router.clone(), until()));
        serving.spawn(self.public.serve(late(&parts.public), until()));
        serving.spawn(self.admin.serve(late(&parts.admin), until()));
    }
}

fn late(router: &LateRouter) -> Router {
    let router = router.clone();
    Router::new().fallback(move |request: Request| serve_late(router, request))
}

impl NodeParts {
    pub(crate) fn new(
        config: Config,
        host: IpAddr,
        class: Class,
        file: WatchedFile,
        cluster: Option<Arc<Cluster>>,
    ) -> Self {
        let grid = Arc::new(OnceLock::new());
        let (internal, public, admin) = Default::default();
        let (health, health_service) = tonic_health::server::health_reporter();
        let status = StatusService { config: config.clone(), grid: grid.clone(), cluster };
        let grpc = Routes::new(health_service.max_decoding_message_size(MAX_HEALTH_MESSAGE))
            .add_service(DataServiceServer::new(status))
            .into_axum_router()
            .reset_fallback();
        let router = grpc.route("/livez", get(async || "ok")).merge(late(&internal));
        Self { config, host, class, file, health, router, grid, internal, public, admin }
    }

    pub(crate) fn health(&self) -> HealthReporter {
        self.health.clone()
    }

    /// Serves the objects of a grid from now on.
    pub(crate) fn serve_grid(&self, grid: Grid) {
        let objects = |caller: Access| {
            let grpc = Routes::new(object_service(grid.clone(), caller));
            grpc.into_axum_router().reset_fallback().merge(router(grid.clone(), caller))
        };
        let internal = objects(Access::Internal)
            .merge(backup::router(grid.clone(), Access::Internal))
            .merge(scrape::router(grid.clone()));
        let public = objects(Access::Public);
        let admin = backup::router(grid.clone(), Access::Private);
        // All are set once.
        let _ = self.internal.set(internal.fallback(fallback));
        let _ = self.public.set(public.fallback(fallback));
        let _ = self.admin.set(admin.fallback(fallback));
        let _ = self.grid.set(grid);
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
async fn serve_late(router: LateRouter, request: Request) -> Response {
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

pub(crate) fn read_class(file: &WatchedFile) -> Result<Class, String> {
    let class: Class = file.read()?;
    class.validate()?;
    Ok(class)
}

/// Methods and triggers change without a restart, the collections don't.
async fn follow_class(grid: Grid, mut file: WatchedFile) {
    loop {
        if let Err(error) = file.changed().await {
            tracing::error!(%error, "cannot watch the class file, ignoring further changes");
            return;
        }
        match read_class(&file) {
            Ok(class) => {
                let collections = grid.class().collections.clone();
                grid.set_class(Class { collections, ..class });
                tracing::info!("reloaded the class");
            }
            Err(error) => tracing::warn!(error, "cannot reload the class, keeping the former"),
        }
    }
}

/// Resumes interrupted runs of macros at the start, and after this node has taken over partitions.
async fn resume_macros(grid: Grid) {
    let mut gains = grid.replica().map(|it| it.ownership.gains());
    let is_own =
        |collection: &str, id: &str| grid.owns(&format!("{}{id}", objects_prefix(collection)));
    loop {
        while let Err(error) = grid.resume_macros(is_own).await {
            tracing::warn!(%error, "cannot resume macro runs, retrying");
            sleep(RESUME_DELAY).await;
        }
        let Some(gains) = &mut gains else { return };
        if gains.changed().await.is_err() {
            return;
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
            tracing::warn!(%error, "cannot delete expired results, retrying");
        }
    }
}
