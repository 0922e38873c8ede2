//! The status API of the grid. It always reports a healthy grid, because no data is stored.

use std::time::{SystemTime, UNIX_EPOCH};

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
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let nodes = self.0.members.iter().map(|member| Node {
            node_id: member.host.clone(),
            address: member.address.clone(),
            status: "active".to_owned(),
            last_heartbeat: rfc3339(now),
        });
        let partitions = self.0.collections.iter().map(|one| one.partition_count.get());
        let shards = partitions.fold(0, u32::saturating_add);
        Ok(Response::new(GetClusterInfoResponse {
            cluster_id: self.0.cluster_id.clone(),
            nodes: nodes.collect(),
            total_shards: shards,
            active_shards: shards,
            balance_score: 1.0,
            leader_node: self.0.members.first().map(|one| one.host.clone()).unwrap_or_default(),
            current_term: 1,
            committed_index: 0,
        }))
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

/// Seconds since 1970 as a date and time of day.
fn rfc3339(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that a leap day is the last one of its year, and are counted
    // within eras of 400 years, which all have 146097 days; the first era begins in the year 0.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = 400 * era + year + next;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_dates_around_leap_days() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), date);
        }
    }
}
