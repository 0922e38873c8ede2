use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;

use super::*;
use crate::provider::{MetricsProvider, RangeQuery, SeriesSink};

/// A provider that a real one can't be made to be: with a given latency and health.
struct Scripted {
    delay: Duration,
    health: Result<(), QueryError>,
    running: AtomicUsize,
    most: AtomicUsize,
    calls: AtomicUsize,
}

impl Scripted {
    fn new(delay: Duration, health: Result<(), QueryError>) -> Self {
        let zero = || AtomicUsize::new(0);
        Self { delay, health, running: zero(), most: zero(), calls: zero() }
    }
}

#[async_trait]
impl MetricsProvider for Scripted {
    async fn query_range(
        &self,
        query: &RangeQuery,
        _: Arc<dyn SeriesSink>,
    ) -> Result<Received, QueryError> {
        assert_eq!((query.start, query.end), (window().start(), at(NOW)));
        let is_histogram = query.promql.contains("_bucket");
        assert_eq!(query.step.as_secs(), if is_histogram { 60 } else { 30 });
        self.calls.fetch_add(1, Ordering::SeqCst);
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        tokio::time::sleep(self.delay).await;
        self.running.fetch_sub(1, Ordering::SeqCst);
        if query.promql.contains("container_oom_events_total") {
            return Err(QueryError::TooLarge);
        }
        Ok(Received::default())
    }

    async fn query_instant(&self, _: &str, _: Timestamp) -> Result<SeriesSet, QueryError> {
        answer(vec![])
    }

    async fn health_check(&self) -> Result<(), QueryError> {
        self.health.clone()
    }
}

async fn run(provider: &Scripted, limit: Duration) -> QueryResults {
    let table = QueryTable::new(&BTreeMap::new(), Duration::from_mins(1), None);
    collect(provider, &table, window(), &Arc::default(), limit).await
}

#[tokio::test]
async fn sends_all_queries_with_bounded_concurrency() {
    let provider = Scripted::new(Duration::from_millis(20), Ok(()));
    let results = run(&provider, Duration::from_mins(1)).await;
    assert_eq!(results.answers.len(), Query::ALL.len());
    assert_eq!(provider.most.load(Ordering::SeqCst), MAX_CONCURRENT_QUERIES);
    // The failure of one is not one of the others.
    let failed: Vec<_> = results.answers.iter().filter(|(_, answer)| answer.is_err()).collect();
    assert!(matches!(failed[..], [(Query::OomEvents, Err(QueryError::TooLarge))]), "{failed:?}");
}

#[tokio::test]
async fn ends_at_the_deadline() {
    let provider = Scripted::new(Duration::from_mins(10), Ok(()));
    let results = run(&provider, Duration::from_millis(100)).await;
    assert_eq!(results.answers.len(), Query::ALL.len());
    assert!(results.answers.values().all(|answer| matches!(answer, Err(QueryError::Timeout))));
    assert_eq!(provider.calls.load(Ordering::SeqCst), MAX_CONCURRENT_QUERIES);
}

#[tokio::test]
async fn unhealthy_provider_gets_no_queries() {
    let provider = Scripted::new(Duration::ZERO, Err(QueryError::BreakerOpen));
    let results = run(&provider, Duration::from_mins(1)).await;
    assert!(results.answers.values().all(|answer| matches!(answer, Err(QueryError::BreakerOpen))));
    assert_eq!(provider.calls.load(Ordering::SeqCst), 0);
}
