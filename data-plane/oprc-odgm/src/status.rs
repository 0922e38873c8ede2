//! The status API of the grid.

use std::{
    pin::Pin,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use futures::{Stream, stream};
use jiff::{SignedDuration, Timestamp};
use oprc_grpc::odgm::{
    GetClusterInfoRequest, GetClusterInfoResponse, GetCollectionStatusRequest,
    GetCollectionStatusResponse, Node, data_service_server::DataService,
};
use tokio::time::{MissedTickBehavior, interval};
use tonic::{Request, Response, Status};

use crate::{
    Grid,
    config::{Config, ReplicaConfig, index_of},
    replica::{
        Replica,
        cluster::{Cluster, Phase},
    },
};

/// How often a watched node compares its state with what it reported.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);

/// Reports on the nodes of a grid.
#[derive(Clone, Debug)]
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
        Ok(Response::new(self.cluster_info()))
    }

    type WatchClusterInfoStream =
        Pin<Box<dyn Stream<Item = Result<GetClusterInfoResponse, Status>> + Send>>;

    async fn watch_cluster_info(
        &self,
        _: Request<GetClusterInfoRequest>,
    ) -> Result<Response<Self::WatchClusterInfoStream>, Status> {
        if self.cluster.is_none() {
            return Err(Status::failed_precondition("the grid has one node"));
        }
        let mut ticks = interval(WATCH_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let start = (self.clone(), ticks, None::<GetClusterInfoResponse>);
        let transitions = stream::unfold(start, |(service, mut ticks, reported)| async move {
            loop {
                ticks.tick().await;
                if service.is_shutting_down() {
                    return None;
                }
                let info = service.cluster_info();
                let state = without_counters(&info);
                if reported.as_ref() != Some(&state) {
                    return Some((Ok(info), (service, ticks, Some(state))));
                }
            }
        });
        Ok(Response::new(Box::pin(transitions)))
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
    fn is_shutting_down(&self) -> bool {
        self.grid.get().and_then(Grid::replica).is_some_and(|it| it.is_shutting_down())
    }

    fn cluster_info(&self) -> GetClusterInfoResponse {
        let Config { node_id, cluster_id, address, collections, .. } = &self.config;
        let shards = collections.iter().map(|it| it.partition_count).sum();
        let info = GetClusterInfoResponse {
            cluster_id: cluster_id.clone(),
            total_shards: shards,
            ..GetClusterInfoResponse::default()
        };
        if let (Some(config), Some(cluster)) = (&self.config.replica, &self.cluster) {
            return self.replicated(config, cluster, info);
        }
        GetClusterInfoResponse {
            nodes: vec![node(node_id, address, "active", Instant::now())],
            active_shards: shards,
            balance_score: 1.0,
            leader_node: node_id.clone(),
            desired_members: 1,
            needed_nodes: 1,
            ..info
        }
    }

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
        nodes.sort_by(|left, right| left.node_id.cmp(&right.node_id));
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
            // Without a majority the members that are known may be outdated.
            desired_members: if cluster.has_quorum() { desired } else { 0 },
            needed_nodes: needed_nodes(status.members.iter().map(|it| it.name.as_str())),
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

/// What the transitions of a watched grid are about.
fn without_counters(info: &GetClusterInfoResponse) -> GetClusterInfoResponse {
    let mut state = GetClusterInfoResponse { committed_index: 0, store_bytes: 0, ..info.clone() };
    state.nodes.iter_mut().for_each(|it| it.last_heartbeat.clear());
    state
}

/// How many nodes there must be for all members. A member that hasn't started has no name: its index may
/// be the lowest that is free.
fn needed_nodes<'a>(members: impl Iterator<Item = &'a str> + Clone) -> u32 {
    let last = members.clone().filter_map(index_of).max().map_or(0, |it| it + 1);
    last.max(u32::try_from(members.count()).unwrap_or(u32::MAX))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_needed_as_long_as_they_may_be_members() {
        for (members, needed) in [
            (vec!["g-0", "g-1", "g-2"], 3),
            (vec!["g-0", "g-1", "g-4"], 5),
            (vec!["g-0", "g-1", "g-2", ""], 4),
            (vec![], 0),
        ] {
            assert_eq!(needed_nodes(members.iter().copied()), needed, "{members:?}");
        }
    }

    #[test]
    fn counters_and_heartbeats_are_no_transitions() {
        let before = GetClusterInfoResponse {
            nodes: vec![node("g-000", "a", "active", Instant::now())],
            committed_index: 1,
            store_bytes: 1,
            ..GetClusterInfoResponse::default()
        };
        let mut after = before.clone();
        after.nodes[0].last_heartbeat = "2026-01-01T00:00:00Z".to_owned();
        (after.committed_index, after.store_bytes) = (2, 2);
        assert_eq!(without_counters(&before), without_counters(&after));
        after.nodes[0].status = "unreachable".to_owned();
        assert_ne!(without_counters(&before), without_counters(&after));
    }
}
