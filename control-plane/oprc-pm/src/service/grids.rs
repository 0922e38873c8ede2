//! The data grids of a deployment, which are queried on request.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use oprc_grpc::deployment::{GetOdgmStatusResponse, OdgmCollectionHealth, OdgmNode};
use oprc_rest::{GridCollection, GridNode, UnitGrid, UnitStatus};
use oprc_unit::replication::has_grid;
use tokio::time::{Instant, timeout_at};

use super::DeploymentService;
use crate::{dispatcher::unit_status, error::Error};

/// Bound on the queries of all grids of a deployment.
const TIMEOUT: Duration = Duration::from_secs(8);
const CONCURRENCY: usize = 8;

impl DeploymentService {
    /// The data grid of each unit that has one, ordered by cluster and unit.
    pub async fn grids(&self, key: &str) -> Result<Vec<UnitGrid>, Error> {
        let (stored, units) = self.stored(key, None)?;
        let deadline = Instant::now() + TIMEOUT;
        let mut grids = Vec::new();
        for (key, unit) in &units {
            let status = unit_status(key, &unit.record, &self.clusters, &self.call_backoff);
            // The plan knows it even if the cluster has never reported a status.
            let planned = stored.record.planned_unit(key, &unit.record.revision);
            if status.odgm.is_some() || planned.is_some_and(|it| has_grid(&it.spec)) {
                grids.push(self.grid(status, deadline));
            }
        }
        Ok(stream::iter(grids).buffered(CONCURRENCY).collect().await)
    }

    async fn grid(&self, unit: UnitStatus, deadline: Instant) -> UnitGrid {
        let query = async {
            let Some(client) = self.clusters.client(&unit.cluster) else {
                return Err(format!("cluster {} is no longer configured", unit.cluster));
            };
            client.odgm_status(&unit.id, &unit.namespace).await
        };
        let answer = timeout_at(deadline, query).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no response within {TIMEOUT:?}")));
        let reported = unit.odgm.unwrap_or_default();
        let named = |name| GridCollection { name, ..GridCollection::default() };
        let grid = UnitGrid {
            id: unit.id,
            cluster: unit.cluster,
            environment: unit.environment,
            class: unit.class,
            service: reported.service,
            ready: reported.ready,
            replicas: reported.replicas,
            collections: reported.collections.into_iter().map(named).collect(),
            ..UnitGrid::default()
        };
        match answer {
            Ok(answer) => with_answer(grid, answer),
            Err(error) => UnitGrid { error: Some(error), ..grid },
        }
    }
}

fn with_answer(grid: UnitGrid, answer: GetOdgmStatusResponse) -> UnitGrid {
    let node = |it: OdgmNode| GridNode {
        id: it.node_id,
        address: it.address,
        status: it.status,
        last_heartbeat: it.last_heartbeat,
    };
    let collection = |it: OdgmCollectionHealth| GridCollection {
        name: it.name,
        partitions: Some(it.partition_count),
        active_partitions: Some(it.active_partitions),
        objects: Some(it.total_objects),
    };
    let has_quota = answer.store_quota_bytes > 0;
    UnitGrid {
        nodes: answer.nodes.into_iter().map(node).collect(),
        leader: answer.leader_node,
        active_shards: answer.active_shards,
        total_shards: answer.total_shards,
        collections: answer.collections.into_iter().map(collection).collect(),
        store_bytes: has_quota.then_some(answer.store_bytes),
        store_quota_bytes: has_quota.then_some(answer.store_quota_bytes),
        low_on_space: answer.low_on_space,
        ..grid
    }
}
