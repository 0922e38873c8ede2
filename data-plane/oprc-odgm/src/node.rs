//! A node of the grid: its store, its servers and its background tasks.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use axum::{Router, routing::get};
use oprc_cp_storage::{RedbOptions, Store};
use oprc_grpc::odgm::data_service_server::DataServiceServer;
use oprc_server::{Options, Server, bind, fallback};
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};
use tonic::service::Routes;
use tonic_health::{ServingStatus, server::HealthReporter};

use crate::{ClassFile, Grid, config::Config, outbox::Outbox, router, status::StatusService};

const FORGET_INTERVAL: Duration = Duration::from_mins(1);
const MAX_HEALTH_MESSAGE: usize = 1024;

/// A node that has opened its store and its port.
pub struct Node {
    server: Server,
    router: Router,
    health: HealthReporter,
    store: Store,
    grid: Grid,
    file: ClassFile,
}

impl Node {
    /// An error is one line.
    pub async fn open(config: Config, host: IpAddr) -> Result<Self, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let file = ClassFile::open(&config.class_file)
            .map_err(|error| format!("ODGM_CLASS_FILE={}: {error}", config.class_file.display()))?;
        let mut class = file.read()?;
        class.collections = config.collections.iter().map(|it| it.name.clone()).collect();
        let store = if config.is_persistent() {
            let path = config.data_dir.join("grid.redb");
            let options = RedbOptions::new(path, &config.node_id);
            Store::redb(options).await.map_err(|error| text(&error))?
        } else {
            Store::memory()
        };
        let grid = Grid::open(store.clone(), class).await.map_err(|error| text(&error))?;
        let server = bind(options(SocketAddr::new(host, config.http_port)));
        let server = server.await.map_err(|error| text(&error))?;
        let (health, health_service) = tonic_health::server::health_reporter();
        let status = DataServiceServer::new(StatusService { config, grid: grid.clone() });
        let grpc = Routes::new(health_service.max_decoding_message_size(MAX_HEALTH_MESSAGE))
            .add_service(status)
            .into_axum_router()
            .reset_fallback();
        let router = grpc.merge(router(grid.clone())).route("/livez", get(async || "ok"));
        Ok(Self { server, router: router.fallback(fallback), health, store, grid, file })
    }

    pub fn address(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Serves until `shutdown`.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send + 'static) {
        let Self { server, router, health, store, grid, file } = self;
        let mut tasks = JoinSet::new();
        tasks.spawn(Outbox::new(grid.clone()).run());
        tasks.spawn(follow_class(grid.clone(), file));
        tasks.spawn(forget_results(grid));
        set_serving(&health, true).await;
        let until = async move {
            shutdown.await;
            set_serving(&health, false).await;
        };
        server.serve(router, until).await;
        tasks.shutdown().await;
        store.close().await;
    }
}

fn options(address: SocketAddr) -> Options {
    Options {
        address,
        tls: None,
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

async fn set_serving(health: &HealthReporter, serving: bool) {
    let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
    for service in ["", "odgm", "ready"] {
        health.set_service_status(service, status).await;
    }
    // The process works until it ends; a node that isn't ready must not be restarted.
    health.set_service_status("live", ServingStatus::Serving).await;
}

/// Methods and triggers change without a restart, the collections don't.
async fn follow_class(grid: Grid, mut file: ClassFile) {
    loop {
        if let Err(error) = file.changed().await {
            tracing::error!(%error, "the file about the class is no longer followed");
            return;
        }
        match file.read() {
            Ok(class) => {
                let collections = grid.class().collections.clone();
                grid.set_class(crate::class::Class { collections, ..class });
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
        if let Err(error) = grid.forget_results().await {
            tracing::warn!(%error, "cannot delete old results, trying again");
        }
    }
}
