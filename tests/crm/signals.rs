//! Signals of a function from the cluster's Prometheus.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use oprc_crm::{
    provider::{MetricsProvider as _, PrometheusOptions, PrometheusProvider},
    signals::{
        Component, ComponentSignals, PodIndex, PodRef, QueryTable, RateWindows, Signal, Source,
        Window, collect, fold,
    },
};
use oprc_tests::{
    TestNamespace, eventually,
    http::{get, get_ok},
    in_namespace,
    objects::{deploy_hello, pod_of},
};

/// That of the sandbox.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_secs(10);
const RANGE: Duration = Duration::from_mins(2);
const LIMIT: Duration = Duration::from_secs(20);
const SCRAPE_TIMEOUT: Duration = Duration::from_mins(3);

fn provider(ns: &TestNamespace) -> PrometheusProvider {
    let options = PrometheusOptions {
        url: ns.cluster.spec().prometheus_url().unwrap(),
        timeout: Duration::from_secs(10),
        ca_file: None,
        token_file: None,
        client_certificate: None,
    };
    PrometheusProvider::new(options).unwrap()
}

fn pod_ref(pod: Pod) -> PodRef {
    let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
    let ready = conditions.into_iter().find(|it| it.type_ == "Ready" && it.status == "True");
    let namespace = pod.metadata.namespace.unwrap();
    PodRef {
        class: (namespace.clone(), "measured".to_owned()),
        component: Component::Function("measured".to_owned()),
        container: "function".to_owned(),
        image: "function".to_owned(),
        name: pod.metadata.name.unwrap(),
        uid: pod.metadata.uid.unwrap(),
        created: pod.metadata.creation_timestamp.unwrap().0,
        ready: ready.is_some(),
        ready_at: ready.and_then(|it| it.last_transition_time).map(|time| time.0),
        unschedulable: false,
        deleted_at: None,
        namespace,
    }
}

/// The signals of the only component. Every query must have an answer.
async fn observe(ns: &TestNamespace, provider: &PrometheusProvider) -> ComponentSignals {
    let index = Arc::new(PodIndex::new([pod_ref(pod_of(ns, "measured").await)]));
    let now = Timestamp::now();
    let windows = RateWindows::new(SCRAPE_INTERVAL, STEP);
    let table = QueryTable::new(&BTreeMap::new(), windows, Some(&ns.name));
    let range = Window::ending_at(now, RANGE, STEP);
    let results = collect(provider, &table, range, &index, LIMIT).await;
    for (query, answer) in &results.answers {
        assert!(answer.as_ref().is_ok_and(|set| !set.partial), "{query:?}: {answer:?}");
    }
    let folded = fold(&results, &index, SCRAPE_INTERVAL, now);
    folded.components.into_values().next().unwrap()
}

#[tokio::test]
async fn signals_of_a_running_function_are_known() {
    in_namespace(async |ns: &TestNamespace| {
        let url = deploy_hello(ns, "measured").await;
        let provider = provider(ns);
        provider.health_check().await.unwrap();
        let known = eventually("signals", SCRAPE_TIMEOUT, async || {
            get_ok(&url).await?;
            let (status, _) = get(&format!("{url}/?fail=503"), None).await?;
            assert_eq!(status, 503);
            let signals = observe(ns, &provider).await;
            let wanted = [
                Signal::Rate,
                Signal::ErrorRatio,
                Signal::LatencyP95,
                Signal::Cpu,
                Signal::MemoryMax,
            ];
            let rate = signals.get(Signal::Rate).is_some_and(|observed| observed.latest > 0.0);
            let complete = rate && wanted.iter().all(|signal| signals.get(*signal).is_some());
            if complete { Ok(signals) } else { Err(format!("{signals:?}")) }
        })
        .await;
        let latest = |signal: Signal| known.get(signal).unwrap().latest;
        assert_eq!(known.get(Signal::Rate).unwrap().source, Source::OwnHistogram);
        let errors = latest(Signal::ErrorRatio);
        assert!(errors > 0.1 && errors < 0.9, "{errors}");
        assert!(latest(Signal::LatencyP95) > 0.0);
        assert!(latest(Signal::MemoryMax) > 100_000.0);
        assert!(known.start_up.is_some_and(|start_up| start_up.p90 < 300.0));
        // Nothing exports these.
        for signal in [Signal::InFlight, Signal::QueueLength, Signal::RejectedRate] {
            assert_eq!(known.get(signal), None);
        }
    })
    .await;
}
