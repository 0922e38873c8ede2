use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};

use super::{
    query::{Query, QueryTable},
    window::Window,
};
use crate::{
    deadline::until,
    provider::{MetricsProvider, QueryError, RangeQuery, SeriesSet},
};

pub const MAX_CONCURRENT_QUERIES: usize = 4;

/// The answers of a pass, which all have the times of one window.
#[derive(Clone, Debug)]
pub struct QueryResults {
    pub window: Window,
    pub answers: BTreeMap<Query, Result<SeriesSet, QueryError>>,
}

/// Sends the queries. Those that have no answer after `limit` have the error `Timeout`.
///
/// The first request is a health check, so that an unavailable provider costs one request, and the
/// trial of its breaker is a cheap one.
pub async fn collect(
    provider: &dyn MetricsProvider,
    queries: &QueryTable,
    window: Window,
    limit: Duration,
) -> QueryResults {
    let end = Instant::now() + limit;
    let health = until(end, provider.health_check()).await.unwrap_or(Err(QueryError::Timeout));
    if let Err(error) = health {
        let answers = queries.iter().map(|(query, _)| (query, Err(error.clone()))).collect();
        return QueryResults { window, answers };
    }
    let send = |(query, promql): (Query, &str)| {
        let range = RangeQuery {
            promql: promql.to_owned(),
            start: window.start(),
            end: window.end(),
            step: window.step(),
        };
        async move {
            let answer = until(end, provider.query_range(&range)).await;
            (query, answer.unwrap_or(Err(QueryError::Timeout)))
        }
    };
    let pending: Vec<_> = queries.iter().map(send).collect();
    let answers = stream::iter(pending).buffer_unordered(MAX_CONCURRENT_QUERIES).collect().await;
    QueryResults { window, answers }
}
