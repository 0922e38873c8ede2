//! Drives clusters to the stored state: a worker per cluster makes the calls that its units need,
//! the rollout loop stores the transitions of deployments and publishes events.

mod call_backoff;
mod cluster_worker;
mod event_log;
mod event_publisher;
mod rollout_loop;
mod status;

use std::{sync::Arc, time::Duration};

use futures::future::{join, join_all};
use oprc_cp_storage::Lease;
use tokio::sync::watch;

pub use self::{
    call_backoff::CallBackoff,
    event_log::{EventLog, StreamItem},
    status::{class_status, status, unit_status},
};
use crate::{
    crm_client::Clusters,
    rollout::{Deadlines, Observation, UnitView},
    state::{Cache, VersionedUnit},
};

/// How long a CRM may still execute a call that was not answered: longer than its own timeout for
/// the API server.
pub const IN_DOUBT: Duration = Duration::from_secs(12);

pub struct Dispatcher {
    pub lease: Arc<Lease>,
    pub cache: Arc<Cache>,
    pub clusters: Arc<Clusters>,
    pub call_backoff: Arc<CallBackoff>,
    pub events: Arc<EventLog>,
    pub deadlines: Deadlines,
}

impl Dispatcher {
    /// Never returns.
    pub async fn run(&self) {
        // Wakes the workers when a deployment's calls are no longer held.
        let released = watch::Sender::new(());
        let workers =
            self.clusters.clients().map(|client| self.drive_cluster(client, released.subscribe()));
        join(join_all(workers), self.run_rollouts(&released)).await;
    }

    fn views<'a>(&self, units: &'a [VersionedUnit]) -> Vec<UnitView<'a>> {
        let view = |(key, stored): &'a VersionedUnit| {
            let record = stored.record.as_ref();
            let (observation, unreachable_since) = match self.clusters.client(&key.0) {
                Some(client) => {
                    let cache = client.class_cache();
                    let observation = cache.observe(&key.1, record.object_namespace());
                    (observation, cache.unreachable_since())
                }
                None => (Observation::Unknown, None),
            };
            let rejection = self.call_backoff.rejection(key, record);
            let (cluster, id) = (key.0.as_str(), key.1.as_str());
            UnitView { cluster, id, record, observation, rejection, unreachable_since }
        };
        units.iter().map(view).collect()
    }
}
