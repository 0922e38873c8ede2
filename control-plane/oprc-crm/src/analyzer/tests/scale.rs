//! Many classes, and passes as frequent as enforcement needs them.

use super::*;

const CLASSES: usize = 1000;
const FAST_STEP: Duration = Duration::from_secs(15);

#[tokio::test]
async fn pass_over_a_thousand_unchanged_classes_writes_nothing() {
    let mut fixture = Fixture::new();
    for number in 0..CLASSES {
        let name = format!("c{number}");
        fixture.add(&name, &fast());
        // Some requirements are met, some are violated, and of some nothing is known.
        match number % 3 {
            0 => fixture.set_load(&name, 10.0, 0.0),
            1 => fixture.set_load(&name, 10.0, 0.5),
            _ => {}
        }
    }
    assert_eq!(fixture.pass().await.len(), CLASSES);
    assert_eq!(fixture.events().len(), CLASSES / 3);
    for _ in 0..3 {
        assert_eq!(fixture.pass().await, []);
    }
    assert_eq!(fixture.events(), []);
    fixture.set_load("c0", 10.0, 0.5);
    let written = fixture.pass().await;
    assert!(matches!(&written[..], [(name, _)] if name == "c0"), "{written:?}");
}

/// A pod whose requests become slow at some time.
struct Slowing {
    since: Timestamp,
    texts: Vec<(Query, String)>,
}

#[async_trait]
impl MetricsProvider for Slowing {
    async fn query_range(
        &self,
        query: &RangeQuery,
        sink: Arc<dyn SeriesSink>,
    ) -> Result<Received, QueryError> {
        // Others are about usage.
        let Some((kind, _)) = self.texts.iter().find(|(_, text)| *text == query.promql) else {
            return Ok(Received::default());
        };
        let add = |label: (&str, &str), value: &dyn Fn(Timestamp) -> f64| {
            let mut series = series("shop-0", label, 0.0, query);
            for point in &mut series.points {
                point.value = value(point.at);
            }
            sink.accept(&(&series).into(), &series.points)
        };
        match kind {
            Query::ProxyRequests => add(("outcome", "ok"), &|_| 10.0)?,
            Query::ProxyLatency => {
                add(("le", "0.1"), &|at| if at < self.since { 10.0 } else { 0.0 })?;
                add(("le", "1"), &|_| 10.0)?;
                add(("le", "+Inf"), &|_| 10.0)?;
            }
            _ => {}
        }
        Ok(Received::default())
    }

    async fn query_instant(&self, _: &str, _: Timestamp) -> Result<SeriesSet, QueryError> {
        Ok(SeriesSet::default())
    }

    async fn health_check(&self) -> Result<(), QueryError> {
        Ok(())
    }
}

#[tokio::test]
async fn transition_is_written_once_although_histograms_have_longer_steps() {
    let mut fixture = Fixture::new();
    fixture.add("shop", &fast());
    let queries = &fixture.analyzer.options.queries;
    let texts = queries.iter().map(|(query, text)| (query, text.to_owned())).collect();
    let since = at(START + 307);
    fixture.analyzer.provider = Some(Box::new(Slowing { since, texts }));
    fixture.analyzer.options.step = FAST_STEP;
    let mut written = Vec::new();
    for _ in 0..120 {
        // A pass each 15 s: the times of histograms are different ones in each of four passes.
        fixture.now.fetch_sub(45, Ordering::SeqCst);
        let statuses = fixture.pass().await;
        let now = fixture.now.load(Ordering::SeqCst);
        written.extend(statuses.into_iter().map(|(_, status)| (now, status)));
    }
    let [(_, before), (noticed, after)] = written.as_slice() else { panic!("{written:?}") };
    assert_eq!(before["nfr_compliance"][0]["state"], "met");
    assert_eq!(after["nfr_compliance"][0]["state"], "violated");
    // A single value isn't a violation.
    assert!(at(*noticed).duration_since(since) <= SignedDuration::from_secs(30), "{noticed}");
    let reported: Timestamp =
        after["nfr_compliance"][0]["since"].as_str().unwrap().parse().unwrap();
    let error = reported.duration_since(since).abs();
    assert!(error <= SignedDuration::from_secs(60), "the rate window: {error}");
}

/// A new pod is ready before it is scraped.
#[tokio::test]
async fn pod_that_is_scraped_late_changes_no_state() {
    let mut fixture = Fixture::new();
    fixture.analyzer.options.step = FAST_STEP;
    fixture.add("shop", &fast());
    fixture.set_load("shop", 10.0, 0.0);
    assert_eq!(fixture.pass().await.len(), 1);
    let ready = fixture.now.load(Ordering::SeqCst);
    let pod = json!({
        "metadata": {
            "name": "shop-1", "namespace": "n", "uid": "shop-1",
            "creationTimestamp": at(ready - 10).to_string(),
            "labels": {"oaas.io/owner": "shop", "oaas.io/function": "f"},
        },
        "status": {"conditions": [{
            "type": "Ready", "status": "True", "lastTransitionTime": at(ready).to_string(),
        }]},
    });
    let pod = PodRecord::of(&serde_json::from_value(pod).unwrap()).unwrap();
    fixture.analyzer.cache.put_pod(pod, None, at(ready));
    for elapsed in [15, 30, 45, 60] {
        fixture.now.store(ready + elapsed - 60, Ordering::SeqCst);
        assert_eq!(fixture.pass().await, [], "after {elapsed} s");
    }
    let load = Load { rate: 10.0, slow: 0.0, ..Load::default() };
    fixture.script.lock().loads.insert("shop-1".to_owned(), load);
    for _ in 0..20 {
        assert_eq!(fixture.pass().await, []);
    }
}
