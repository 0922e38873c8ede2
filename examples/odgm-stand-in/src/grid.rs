//! The status API of the grid. It always reports a healthy grid, because no data is stored.

use jiff::Timestamp;
use oprc_grpc::odgm::{
    GetClusterInfoRequest, GetClusterInfoResponse, GetCollectionStatusRequest,
    GetCollectionStatusResponse, Node, data_service_server::DataService,
};
use tonic::{Request, Response, Status};

use crate::config::Config;

pub(crate) struct Grid(pub(crate) Config);

#[tonic::async_trait]
impl DataService for Grid {
    async fn get_cluster_info(
        &self,
        _: Request<GetClusterInfoRequest>,
    ) -> Result<Response<GetClusterInfoResponse>, Status> {
        // Without fractions of a second.
        let now = format!("{:.0}", Timestamp::now());
        let node = Node {
            node_id: self.0.node_id.clone(),
            address: self.0.address.clone(),
            status: "active".to_owned(),
            last_heartbeat: now,
        };
        let partitions = self.0.collections.iter().map(|one| one.partition_count.get());
        let shards = partitions.fold(0, u32::saturating_add);
        Ok(Response::new(GetClusterInfoResponse {
            cluster_id: self.0.cluster_id.clone(),
            leader_node: node.node_id.clone(),
            nodes: vec![node],
            total_shards: shards,
            active_shards: shards,
            balance_score: 1.0,
            current_term: 1,
            ..GetClusterInfoResponse::default()
        }))
    }

    type WatchClusterInfoStream = tonic::codegen::BoxStream<GetClusterInfoResponse>;

    async fn watch_cluster_info(
        &self,
        _: Request<GetClusterInfoRequest>,
    ) -> Result<Response<Self::WatchClusterInfoStream>, Status> {
        Err(Status::unimplemented("it stores nothing, so nothing changes"))
    }

    async fn get_collection_status(
        &self,
        request: Request<GetCollectionStatusRequest>,
    ) -> Result<Response<GetCollectionStatusResponse>, Status> {
        let name = request.into_inner().collection_name;
        let collection = self.0.collections.iter().find(|one| one.name == name);
        let collection =
            collection.ok_or_else(|| Status::not_found(format!("no collection {name:?}")))?;
        Ok(Response::new(GetCollectionStatusResponse {
            collection_name: name,
            partition_count: collection.partition_count.get(),
            active_partitions: collection.partition_count.get(),
            total_objects: 0,
        }))
    }
}
