//! The status API of the grid.

use jiff::Timestamp;
use oprc_grpc::odgm::{
    GetClusterInfoRequest, GetClusterInfoResponse, GetCollectionStatusRequest,
    GetCollectionStatusResponse, Node, data_service_server::DataService,
};
use tonic::{Request, Response, Status};

use crate::{Grid, config::Config};

/// Reports on the only node of a grid.
#[derive(Debug)]
pub(crate) struct StatusService {
    pub(crate) config: Config,
    pub(crate) grid: Grid,
}

#[tonic::async_trait]
impl DataService for StatusService {
    async fn get_cluster_info(
        &self,
        _: Request<GetClusterInfoRequest>,
    ) -> Result<Response<GetClusterInfoResponse>, Status> {
        let Config { node_id, cluster_id, address, collections, .. } = &self.config;
        let shards = collections.iter().map(|it| it.partition_count).sum();
        let node = Node {
            node_id: node_id.clone(),
            address: address.clone(),
            status: "active".to_owned(),
            // Without fractions of a second.
            last_heartbeat: format!("{:.0}", Timestamp::now()),
        };
        Ok(Response::new(GetClusterInfoResponse {
            cluster_id: cluster_id.clone(),
            nodes: vec![node],
            total_shards: shards,
            active_shards: shards,
            balance_score: 1.0,
            leader_node: node_id.clone(),
            ..GetClusterInfoResponse::default()
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
        Ok(Response::new(GetCollectionStatusResponse {
            total_objects: self.grid.count(&name),
            collection_name: name,
            partition_count: partitions,
            active_partitions: partitions,
        }))
    }
}
