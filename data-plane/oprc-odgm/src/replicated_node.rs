//! A node of a replicated grid: joins the others with its etcd, serves, and hands over its partitions at
//! shutdown.

use std::{
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use oprc_cp_storage::{EtcdAdmin, EtcdOptions, Store};
use oprc_server::{Server, TlsFiles, bind};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use tonic_health::server::HealthReporter;

use crate::{
    Grid, WatchedFile,
    config::{Config, ReplicaConfig},
    node_parts::{NodeParts, Servers, options, set_live, set_ready},
    peer_api::{self, PeerApi},
    replica::{
        Replica,
        cluster::{Cluster, MembersDocument, Phase},
        defragmentation::SPACE_DEADLINE,
        etcd_child::EtcdChild,
        join::Joiner,
        peer_client::{AUTHORITY, CERTIFICATE, KEY, PeerClient},
        peers::Peers,
        roster::Roster,
    },
};

/// Of each call of etcd. A proposal that a dead leader got is lost, and is repeated after this time.
const STORE_DEADLINE: Duration = Duration::from_secs(3);
const ADMIN_DEADLINE: Duration = Duration::from_secs(2);
const RETRY_DELAY: Duration = Duration::from_millis(200);
/// Callers may learn late that a node is no longer ready.
const DRAIN_DELAY: Duration = Duration::from_secs(2);
/// The prefix of the grid's keys in etcd.
const ROOT: &str = "grid";

/// What a node needs to join the others.
pub(crate) struct PreparedReplica {
    pub(crate) cluster: Arc<Cluster>,
    config: ReplicaConfig,
    members_file: WatchedFile,
    peer_server: Server,
    roster: Arc<Roster>,
    client: Arc<PeerClient>,
    peers: Arc<Peers>,
    admin: EtcdAdmin,
}

impl PreparedReplica {
    pub(crate) async fn open(
        config: &Config,
        replica: &ReplicaConfig,
        host: IpAddr,
    ) -> Result<Self, String> {
        let path = &replica.members_file;
        let named = |error: &dyn std::fmt::Display| {
            format!("ODGM_MEMBERS_FILE={}: {error}", path.display())
        };
        let members_file = WatchedFile::open(path).map_err(|error| named(&error))?;
        let desired = MembersDocument::read(&members_file).map_err(|error| named(&error))?;
        let roster = Roster::open(&config.data_dir, &replica.peer_address(0))
            .map_err(|error| format!("ODGM_DATA_DIR={}: {error}", config.data_dir.display()))?;
        let client = PeerClient::new(&replica.tls_dir);
        let client = Arc::new(client.map_err(|error| format!("ODGM_TLS_DIR: {error}"))?);
        let tls = TlsFiles {
            certificate: replica.tls_dir.join(CERTIFICATE),
            key: replica.tls_dir.join(KEY),
            client_ca: Some(replica.tls_dir.join(AUTHORITY)),
        };
        let address = SocketAddr::new(host, replica.peer_port);
        let peer_server = bind(options(address, Some(tls))).await;
        let endpoint = format!("http://{}", replica.etcd_client);
        let admin = EtcdAdmin::new(&endpoint, ADMIN_DEADLINE);
        Ok(Self {
            cluster: Arc::new(Cluster::new(replica.clone(), desired)),
            config: replica.clone(),
            members_file,
            peer_server: peer_server.map_err(|error| error.to_string())?,
            roster: Arc::new(roster),
            peers: Arc::new(Peers::new(replica.clone(), client.clone())),
            client,
            admin: admin.map_err(|error| error.to_string())?,
        })
    }
}

pub(crate) struct ReplicatedNode {
    pub(crate) servers: Servers,
    pub(crate) parts: NodeParts,
    pub(crate) prepared: PreparedReplica,
}

impl ReplicatedNode {
    pub(crate) async fn run(
        self,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), String> {
        let Self { servers, parts, prepared } = self;
        let health = parts.health();
        set_live(&health).await;
        set_ready(&health, false).await;
        let stop = watch::Sender::new(false);
        let mut serving = JoinSet::new();
        servers.serve(&parts, &mut serving, || oprc_server::stopped(stop.subscribe()));
        let api = PeerApi {
            cluster: prepared.cluster.clone(),
            roster: prepared.roster.clone(),
            admin: prepared.admin.clone(),
            grid: parts.grid.clone(),
        };
        let until = oprc_server::stopped(stop.subscribe());
        serving.spawn(prepared.peer_server.serve(peer_api::router(api), until));
        let member = Member {
            config: prepared.config,
            cluster: prepared.cluster,
            members_file: Some(prepared.members_file),
            roster: prepared.roster,
            client: prepared.client,
            peers: prepared.peers,
            admin: prepared.admin,
        };
        let ended = member.run(parts, health, shutdown, &stop).await;
        stop.send_replace(true);
        while serving.join_next().await.is_some() {}
        match ended {
            Ok(Some(child)) => {
                child.stop().await;
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

struct Member {
    config: ReplicaConfig,
    cluster: Arc<Cluster>,
    members_file: Option<WatchedFile>,
    roster: Arc<Roster>,
    client: Arc<PeerClient>,
    peers: Arc<Peers>,
    admin: EtcdAdmin,
}

impl Member {
    /// Returns etcd after an orderly shutdown, if it was started.
    async fn run(
        mut self,
        parts: NodeParts,
        health: HealthReporter,
        shutdown: impl Future<Output = ()>,
        stop: &watch::Sender<bool>,
    ) -> Result<Option<EtcdChild>, String> {
        let mut shutdown = pin!(shutdown);
        let mut tasks = JoinSet::new();
        if let Some(file) = self.members_file.take() {
            let cluster = self.cluster.clone();
            tasks.spawn(async move { cluster.follow_desired(file).await });
        }
        let joined = tokio::select! {
            started = self.start_etcd(&parts) => started,
            () = &mut shutdown => return Ok(None),
        };
        let mut child = joined?;
        let (cluster, admin) = (self.cluster.clone(), self.admin.clone());
        tasks.spawn(async move { cluster.follow(&admin).await });
        tasks.spawn(report_health(self.cluster.clone(), health.clone()));
        let opened = tokio::select! {
            store = self.open_store() => store,
            reason = child.ended() => return Err(reason),
            () = &mut shutdown => return Ok(Some(child)),
        };
        let store = opened?;
        let replica = Arc::new(Replica::new(
            self.config.clone(),
            &parts.config.collections,
            store.clone(),
            self.cluster.clone(),
            self.peers.clone(),
            self.client.clone(),
        ));
        let grid = self.open_grid(&store, &parts, &replica);
        let grid = tokio::select! {
            grid = grid => grid,
            reason = child.ended() => return Err(reason),
            () = &mut shutdown => return Ok(Some(child)),
        };
        parts.serve_grid(grid.clone());
        self.start_tasks(&replica, &mut tasks);
        parts.start_tasks(&mut tasks);
        tokio::select! {
            reason = child.ended() => return Err(reason),
            () = &mut shutdown => {}
        }
        set_ready(&health, false).await;
        replica.hand_over(grid.turns.idle()).await;
        sleep(DRAIN_DELAY).await;
        stop.send_replace(true);
        timeout(Duration::from_secs(5), grid.turns.idle()).await.unwrap_or_default();
        let status = self.cluster.status();
        if status.is_leader()
            && let Err(error) = replica.move_leader(&self.admin, &status.members).await
        {
            tracing::warn!(%error, "cannot hand over leadership");
        }
        tasks.shutdown().await;
        Ok(Some(child))
    }

    async fn start_etcd(&self, parts: &NodeParts) -> Result<EtcdChild, String> {
        let data_dir = &parts.config.data_dir;
        let joiner = Joiner {
            config: &self.config,
            data_dir,
            roster: &self.roster,
            client: &self.client,
            cluster: &self.cluster,
        };
        let start = joiner.decide().await.map_err(|error| error.to_string())?;
        tracing::info!(?start, "starting etcd");
        let (token, host) = (&parts.config.cluster_id, parts.host);
        let child = EtcdChild::spawn(&self.config, data_dir, token, host, &start);
        self.cluster.set_phase(Phase::Member);
        child.map_err(|error| format!("cannot start etcd: {error}"))
    }

    /// Waits for a majority, and until the member has a vote.
    async fn open_store(&self) -> Result<Store, String> {
        let status = loop {
            match self.admin.status().await {
                Ok(status) => break status,
                Err(_) => sleep(RETRY_DELAY).await,
            }
        };
        self.roster
            .update(|record| (record.member_id, record.has_run) = (Some(status.id), true))
            .map_err(|error| error.to_string())?;
        let endpoint = format!("http://{}", self.config.etcd_client);
        loop {
            let options = EtcdOptions {
                root: ROOT.to_owned(),
                deadline: STORE_DEADLINE,
                ..EtcdOptions::new([endpoint.clone()])
            };
            match Store::etcd(options).await {
                Ok(store) => return Ok(store),
                Err(error) => tracing::info!(%error, "waiting for a majority of the members"),
            }
            sleep(RETRY_DELAY).await;
        }
    }

    async fn open_grid(&self, store: &Store, parts: &NodeParts, replica: &Arc<Replica>) -> Grid {
        loop {
            let class = parts.class.clone();
            match Grid::replicated(store.clone(), class, replica.clone()).await {
                Ok(grid) => return grid,
                Err(error) => tracing::warn!(%error, "cannot open the grid, retrying"),
            }
            sleep(RETRY_DELAY).await;
        }
    }

    fn start_tasks(&self, replica: &Arc<Replica>, tasks: &mut JoinSet<()>) {
        let (peers, cluster) = (self.peers.clone(), self.cluster.clone());
        tasks.spawn(async move { peers.monitor(&cluster).await });
        let own = replica.clone();
        tasks.spawn(async move {
            loop {
                if let Err(error) = own.ownership.follow().await {
                    tracing::info!(%error, "watch of partition owners ended, reading them again");
                }
                sleep(RETRY_DELAY).await;
            }
        });
        let own = replica.clone();
        tasks.spawn(async move { own.balance().await });
        let (own, admin) = (replica.clone(), self.admin.clone());
        tasks.spawn(async move { own.manage_members(&admin).await });
        let (own, admin) = (replica.clone(), self.admin.with_deadline(SPACE_DEADLINE));
        tasks.spawn(async move { own.free_space(&admin).await });
    }
}

/// A node is ready while its member has a leader and a vote.
async fn report_health(cluster: Arc<Cluster>, health: HealthReporter) {
    let mut reported = None;
    loop {
        let is_ready = cluster.has_quorum();
        if reported.replace(is_ready) != Some(is_ready) {
            tracing::info!(is_ready, "readiness changed");
            set_ready(&health, is_ready).await;
        }
        sleep(RETRY_DELAY).await;
    }
}
