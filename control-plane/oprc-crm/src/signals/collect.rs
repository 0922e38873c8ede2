use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};

use super::{
    budget::PassBudget,
    pods::PodIndex,
    query::{Query, QueryTable},
    rows::{QueryRows, RowSink},
    window::Window,
};
use crate::{
    deadline::until,
    provider::{MetricsProvider, QueryError, RangeQuery},
};

pub const MAX_CONCURRENT_QUERIES: usize = 4;

/// The answers of a pass.
#[derive(Debug)]
pub struct QueryResults {
    pub window: Window,
    /// The times of histograms: some of those of `window`.
    pub(super) histogram_window: Window,
    pub answers: BTreeMap<Query, Result<QueryRows, QueryError>>,
}

impl QueryResults {
    /// Bytes that were read.
    pub fn bytes(&self) -> usize {
        self.answers.values().flatten().map(|rows| rows.bytes).sum()
    }
}

/// Sends the queries, and keeps the values of the pods in `index`. Queries that have no answer after
/// `limit` have the error `Timeout`.
///
/// The first request is a health check, so that an unavailable provider costs one request, and the
/// trial of its breaker is a cheap one.
pub async fn collect(
    provider: &dyn MetricsProvider,
    queries: &QueryTable,
    window: Window,
    index: &Arc<PodIndex>,
    limit: Duration,
) -> QueryResults {
    let end = Instant::now() + limit;
    let histogram_window = queries.histogram_window(window);
    let health = until(end, provider.health_check()).await.unwrap_or(Err(QueryError::Timeout));
    if let Err(error) = health {
        let answers = queries.iter().map(|(query, _)| (query, Err(error.clone()))).collect();
        return QueryResults { window, histogram_window, answers };
    }
    let budget = Arc::<PassBudget>::default();
    let send = |(query, promql): (Query, &str)| {
        let window = if query.is_histogram() { histogram_window } else { window };
        let range = RangeQuery {
            promql: promql.to_owned(),
            start: window.start(),
            end: window.end(),
            step: window.step(),
        };
        let sink = Arc::new(RowSink::new(query, window, index, &budget));
        async move {
            let received = until(end, provider.query_range(&range, sink.clone())).await;
            let received = received.unwrap_or(Err(QueryError::Timeout));
            (query, received.map(|received| sink.take(received)))
        }
    };
    let pending: Vec<_> = queries.iter().map(send).collect();
    let answers = stream::iter(pending).buffer_unordered(MAX_CONCURRENT_QUERIES).collect().await;
    QueryResults { window, histogram_window, answers }
}
