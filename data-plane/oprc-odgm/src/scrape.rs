//! The endpoint of the metrics.

use std::time::Duration;

use axum::{
    Router,
    extract::State as Shared,
    http::header::CONTENT_TYPE,
    response::{IntoResponse as _, Response},
    routing::get,
};
use tokio::time::timeout;

use crate::{
    Grid,
    metrics::{self, Observed, StoreUsage},
    record::{EVENTS, PARKED},
};

/// Shorter than a scrape of Prometheus may take.
const LIMIT: Duration = Duration::from_secs(5);

pub(crate) fn router(grid: Grid) -> Router {
    Router::new().route("/metrics", get(scrape)).with_state(grid)
}

async fn scrape(Shared(grid): Shared<Grid>) -> Response {
    let mut observed = Observed { turns: grid.turns.calls(), ..Observed::default() };
    if let Some(replica) = grid.replica() {
        let status = replica.cluster.status();
        observed.store = status.own.as_ref().map(|own| StoreUsage {
            bytes: own.bytes,
            bytes_in_use: own.bytes_in_use,
            quota_bytes: replica.config.etcd_quota_bytes,
        });
        let owned = replica.ownership.counts().get(&replica.config.name).copied();
        (observed.owned_partitions, observed.is_leader) = (owned, Some(status.is_leader()));
    }
    observed.oldest_event = grid.outbox_age();
    // Without the store the rest is shown.
    let counts = async {
        observed.events_pending = grid.store().count(EVENTS).await.ok();
        observed.events_parked = grid.store().count(PARKED).await.ok();
        for collection in &grid.class().collections {
            if let Ok(count) = grid.count(collection).await {
                observed.objects.push((collection.clone(), count));
            }
        }
    };
    timeout(LIMIT, counts).await.unwrap_or_default();
    let text = grid.metrics().text(&observed);
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}
