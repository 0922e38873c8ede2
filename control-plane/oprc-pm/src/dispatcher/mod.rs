//! Drives clusters to the stored state: a worker per cluster makes the calls that its units need,
//! the rollout loop stores the transitions of deployments and publishes events.

mod call_backoff;
mod cluster_worker;
mod event_log;
mod event_publisher;
mod nfr;
mod rollout_loop;
mod status;

use std::{sync::Arc, time::Duration};

use futures::future::{join, join_all};
use oprc_cp_storage::Lease;
use tokio::sync::watch;

pub use self::{
    call_backoff::CallBackoff,
    event_log::{EventLog, StreamItem},
    nfr::NFR_OBSERVED,
    status::{class_status, status, unit_status},
};
use crate::{
    clock,
    crm_client::Clusters,
    rollout::{Deadlines, DeploymentRecord, Evaluation, Observation, UnitView, evaluate},
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

    fn evaluate(&self, record: &DeploymentRecord, units: &[VersionedUnit]) -> Evaluation {
        evaluate(record, &self.views(units), clock::now(), self.deadlines)
    }

    fn views<'a>(&self, units: &'a [VersionedUnit]) -> Vec<UnitView<'a>> {
        let view = |(key, stored): &'a VersionedUnit| {
            let record = stored.record.as_ref();
            let cache = self.clusters.client(&key.0).map(|client| client.class_cache());
            let observation = cache.as_ref().map_or(Observation::Unknown, |cache| {
                cache.observe(&key.1, record.object_namespace())
            });
            let unreachable_since = cache.and_then(|cache| cache.unreachable_since);
            let rejection = self.call_backoff.rejection(key, record);
            UnitView { key, record, observation, rejection, unreachable_since }
        };
        units.iter().map(view).collect()
    }
}
