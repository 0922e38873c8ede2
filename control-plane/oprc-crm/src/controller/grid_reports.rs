//! Follows what replicated data grids report about themselves: one stream for each grid, while this
//! process is the leader.

use std::{collections::HashMap, sync::Arc, time::Duration};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use kube::Client;
use oprc_grpc::odgm::{GetClusterInfoRequest, GetClusterInfoResponse};
use parking_lot::Mutex;
use tokio::{
    task::AbortHandle,
    time::{sleep, timeout},
};

use crate::{
    cache::{Cache, Key},
    deadline::REQUEST_TIMEOUT,
    grid_client::{cluster_ip, connect},
    reconcile::observe::GridObservation,
};

/// The shortest and the longest pause before a stream is opened again.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

pub struct GridReports {
    client: Client,
    cache: Arc<Cache>,
    streams: Mutex<HashMap<Key, FollowedGrid>>,
}

struct FollowedGrid {
    /// Host and port.
    service: String,
    stream: AbortHandle,
}

impl Drop for FollowedGrid {
    fn drop(&mut self) {
        self.stream.abort();
    }
}

impl GridReports {
    pub fn new(client: Client, cache: Arc<Cache>) -> Self {
        Self { client, cache, streams: Mutex::default() }
    }

    /// Follows the grid with this Service, or none if the class has no replicated grid.
    pub(super) fn follow(&self, class: &Key, service: Option<&String>) {
        let mut streams = self.streams.lock();
        let Some(service) = service else {
            streams.remove(class);
            return;
        };
        if streams.get(class).is_some_and(|it| it.service == *service) {
            return;
        }
        let stream = Stream {
            client: self.client.clone(),
            cache: Arc::clone(&self.cache),
            class: class.clone(),
            service: service.clone(),
        };
        let task = tokio::spawn(async move { stream.run().await });
        let followed = FollowedGrid { service: service.clone(), stream: task.abort_handle() };
        streams.insert(class.clone(), followed);
    }

    pub(super) fn clear(&self) {
        self.streams.lock().clear();
    }
}

struct Stream {
    client: Client,
    cache: Arc<Cache>,
    class: Key,
    service: String,
}

impl Stream {
    async fn run(&self) {
        let (namespace, class_runtime) = (&self.class.0, &self.class.1);
        let backoff = || {
            let (min, max) = BACKOFF;
            let builder = ExponentialBuilder::default().with_jitter().without_max_times();
            builder.with_min_delay(min).with_max_delay(max).build()
        };
        let mut pauses = backoff();
        loop {
            let mut has_reported = false;
            let ended = self.receive(&mut has_reported).await;
            self.cache.remove_grid(&self.class);
            if has_reported {
                pauses = backoff();
            }
            let error = ended.err();
            tracing::debug!(
                namespace,
                class_runtime,
                error,
                "stream of the data grid ended, reopening"
            );
            sleep(pauses.next().unwrap_or(BACKOFF.1)).await;
        }
    }

    /// Receives reports until the stream ends.
    async fn receive(&self, has_reported: &mut bool) -> Result<(), String> {
        let open = async {
            let name = self.service.split(':').next().unwrap_or_default();
            let address = cluster_ip(&self.client, &self.class.0, name).await;
            let address = address.map_err(|error| error.to_string())?;
            let address = address.ok_or_else(|| format!("Service {name} has no cluster IP yet"))?;
            let client = connect(&address, &self.service).await;
            let mut client = client.map_err(|error| error.to_string())?;
            let watch = client.watch_cluster_info(GetClusterInfoRequest {}).await;
            watch.map_err(|status| status.message().to_owned())
        };
        let opened = timeout(REQUEST_TIMEOUT, open).await;
        let mut reports = opened.map_err(|_| "no response in time".to_owned())??.into_inner();
        while let Some(info) =
            reports.message().await.map_err(|status| status.message().to_owned())?
        {
            *has_reported = true;
            self.cache.put_grid(&self.class, observation(&info));
        }
        Ok(())
    }
}

fn observation(info: &GetClusterInfoResponse) -> GridObservation {
    let count = |it: u32| i32::try_from(it).unwrap_or(i32::MAX);
    GridObservation {
        desired_members: count(info.desired_members),
        needed_nodes: count(info.needed_nodes),
        low_on_space: info.low_on_space,
    }
}
