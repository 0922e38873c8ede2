//! The status API of the grid.

use std::{
    sync::{Arc, OnceLock},
    time::Instant,
};

use jiff::{SignedDuration, Timestamp};
use oprc_grpc::odgm::{
    GetClusterInfoRequest, GetClusterInfoResponse, GetCollectionStatusRequest,
    GetCollectionStatusResponse, Node, data_service_server::DataService,
};
use tonic::{Request, Response, Status};

use crate::{
    Grid,
    config::{Config, ReplicaConfig, index_of},
    replica::{
        Replica,
        cluster::{Cluster, Phase},
    },
};

/// Reports on the nodes of a grid.
#[derive(Debug)]
pub(crate) struct StatusService {
    pub(crate) config: Config,
    /// Empty until the store is open.
    pub(crate) grid: Arc<OnceLock<Grid>>,
    /// None if the node is the only one.
    pub(crate) cluster: Option<Arc<Cluster>>,
}

#[tonic::async_trait]
impl DataService for StatusService {
    async fn get_cluster_info(
        &self,
        _: Request<GetClusterInfoRequest>,
    ) -> Result<Response<GetClusterInfoResponse>, Status> {
        let Config { node_id, cluster_id, address, collections, .. } = &self.config;
        let shards = collections.iter().map(|it| it.partition_count).sum();
        let info = GetClusterInfoResponse {
            cluster_id: cluster_id.clone(),
            total_shards: shards,
            ..GetClusterInfoResponse::default()
        };
        if let (Some(config), Some(cluster)) = (&self.config.replica, &self.cluster) {
            return Ok(Response::new(self.replicated(config, cluster, info)));
        }
        let node = node(node_id, address, "active", Instant::now());
        Ok(Response::new(GetClusterInfoResponse {
            nodes: vec![node],
            active_shards: shards,
            balance_score: 1.0,
            leader_node: node_id.clone(),
            ..info
        }))
    }

    async fn get_collection_status(
        &self,
        request: Request<GetCollectionStatusRequest>,
    ) -> Result<Response<GetCollectionStatusResponse>, Status> {
        let name = request.into_inner().collection_name;
        let collection = self.config.collections.iter().find(|it| it.name == name);
        let missing = || Status::not_found(format!("there is no collection {name:?}"));
        let partitions = collection.ok_or_else(missing)?.partition_count;
        let starting = || Status::unavailable("the node has not opened its store");
        let grid = self.grid.get().ok_or_else(starting)?;
        let count = grid.count(&name).await;
        let active_partitions = match grid.replica() {
            Some(replica) => replica.ownership.count(&name, |node| is_serving(replica, node)),
            None => partitions,
        };
        Ok(Response::new(GetCollectionStatusResponse {
            total_objects: count.map_err(|error| Status::unavailable(error.to_string()))?,
            collection_name: name,
            partition_count: partitions,
            active_partitions,
        }))
    }
}

impl StatusService {
    /// All members, and this node even if it isn't one.
    fn replicated(
        &self,
        config: &ReplicaConfig,
        cluster: &Cluster,
        info: GetClusterInfoResponse,
    ) -> GetClusterInfoResponse {
        let (status, desired) = (cluster.status(), cluster.desired());
        let replica = self.grid.get().and_then(Grid::replica);
        let mut nodes: Vec<Node> = Vec::new();
        for member in status.members.iter().filter(|it| !it.name.is_empty()) {
            let Some(index) = index_of(&member.name) else { continue };
            let is_own = member.name == config.name;
            let responded = replica.and_then(|it| it.peers.responded(&member.name));
            let is_dead = !is_own && replica.is_some_and(|it| it.peers.is_dead(&member.name));
            let is_ready = replica.is_some_and(|it| is_serving(it, &member.name));
            let state = match () {
                () if is_dead => "unreachable",
                () if member.is_learner => "learner",
                () if index >= desired => "leaving",
                () if is_ready => "active",
                () => "starting",
            };
            let responded = responded.filter(|_| !is_own).unwrap_or_else(Instant::now);
            let (id, address) = (self.id_of(index), self.address_of(config, index));
            nodes.push(node(&id, &address, state, responded));
        }
        if !status.members.iter().any(|it| it.name == config.name) {
            let state = match status.phase {
                Phase::Removed => "removed",
                Phase::Joining => "joining",
                Phase::Starting | Phase::Member => "starting",
            };
            nodes.push(node(&self.config.node_id, &self.config.address, state, Instant::now()));
        }
        let leader = status.leader().and_then(|it| index_of(&it.name));
        let collections = self.config.collections.iter();
        let active = collections.map(|it| {
            let of = |replica: &Arc<Replica>| {
                replica.ownership.count(&it.name, |node| is_serving(replica, node))
            };
            replica.map_or(0, of)
        });
        GetClusterInfoResponse {
            nodes,
            active_shards: if cluster.has_quorum() { active.sum() } else { 0 },
            balance_score: replica.map_or(1.0, |it| balance(it)),
            leader_node: leader.map(|index| self.id_of(index)).unwrap_or_default(),
            current_term: status.own.as_ref().map_or(0, |it| it.term),
            committed_index: status.own.as_ref().map_or(0, |it| it.index),
            store_bytes: status.own.as_ref().map_or(0, |it| it.bytes_in_use),
            store_quota_bytes: config.etcd_quota_bytes,
            low_on_space: cluster.is_low_on_space(),
            ..info
        }
    }

    /// The id of a node: that of this one, with another index.
    fn id_of(&self, index: u32) -> String {
        let own = self.config.replica.as_ref().map_or(0, |it| it.index);
        let id = &self.config.node_id;
        let prefix = id.strip_suffix(&format!("{own:03}"));
        format!("{}{index:03}", prefix.unwrap_or(id))
    }

    fn address_of(&self, config: &ReplicaConfig, index: u32) -> String {
        self.config.address.replace(&config.host_of(config.index), &config.host_of(index))
    }
}

/// Whether a node executes the calls of its partitions.
fn is_serving(replica: &Replica, node: &str) -> bool {
    if node == replica.config.name { replica.is_ready() } else { replica.peers.is_ready(node) }
}

/// The smallest number of partitions of a node divided by the largest.
fn balance(replica: &Replica) -> f64 {
    let counts = replica.ownership.counts();
    let voters = replica.cluster.voters();
    let owned = voters.iter().map(|it| counts.get(it).copied().unwrap_or_default());
    let (Some(least), Some(most)) = (owned.clone().min(), owned.max()) else { return 1.0 };
    if most == 0 { 1.0 } else { f64::from(least) / f64::from(most) }
}

fn node(id: &str, address: &str, status: &str, responded: Instant) -> Node {
    let age = SignedDuration::try_from(responded.elapsed()).unwrap_or_default();
    let at = Timestamp::now().checked_sub(age).unwrap_or_else(|_| Timestamp::now());
    Node {
        node_id: id.to_owned(),
        address: address.to_owned(),
        status: status.to_owned(),
        // Without fractions of a second.
        last_heartbeat: format!("{at:.0}"),
    }
}
