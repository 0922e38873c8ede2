//! Prometheus is killed, hangs and fails: nothing is changed, the status says why, and CRM recovers.

use std::time::Duration;

use oprc_crm::crd::ClassRuntimeStatus;
use oprc_tests::{
    TestNamespace,
    class::{classes, deploy, hello_with_little_cpu, spec_of, wait_available, wait_for_status},
    crm::{Crm, Options},
    fixture::{address, wait_for_response, with_crm},
    generator::Generator,
    load::{Connection, Target},
    prometheus::Prometheus,
    shared,
};
use serde_json::json;

const TIMEOUT: Duration = Duration::from_mins(3);

/// A Prometheus with the series of the cluster's.
async fn follower() -> Prometheus {
    let source = shared().await.spec().prometheus_url().unwrap();
    let names = r#"{__name__=~"oprc_proxy_.+|container_.+"}"#;
    Prometheus::start(&json!({
        "scrape_configs": [{
            "job_name": "cluster",
            "scrape_interval": "5s",
            "honor_labels": true,
            "metrics_path": "/federate",
            "params": {"match[]": [names]},
            "static_configs": [{"targets": [source.strip_prefix("http://").unwrap()]}],
        }],
    }))
    .await
}

#[tokio::test]
async fn nothing_changes_while_prometheus_fails() {
    let mut prometheus = follower().await;
    let options = Options::enforcing(&prometheus.url)
        // On a busy machine a good answer may take a second.
        .with("OPRC_CRM_PROM_QUERY_TIMEOUT_SECS", "3")
        .with("OPRC_CRM_PROM_STEP", "5s")
        // A floor that isn't needed would be lowered at once.
        .with("OPRC_CRM_ENFORCEMENT_STABILITY_SECS", "5")
        .with("OPRC_CRM_ENFORCEMENT_COOLDOWN_SECS", "2")
        .with("OPRC_CRM_ANALYZER_URGENT_INTERVAL_SECS", "2")
        .with("OPRC_CRM_ANALYZER_INTERVAL_SECS", "2");
    with_crm(&options, async |ns: &TestNamespace, crm: &Crm| {
        // One instance serves 20 requests/s.
        let mut spec = spec_of(&[hello_with_little_cpu("greet", 4)]);
        spec["selected_template"] = json!("k8s_deployment");
        spec["nfr_requirements"] = json!({"max_latency_ms": 500});
        spec["nfr"] = json!({"enforcement": {"mode": "enforce", "dimensions": ["replicas"]}});
        deploy(&crm.client, "watched", &spec).await.unwrap();
        wait_available(ns, "watched").await;
        let url = address(ns, "watched--greet").await;
        wait_for_response(&Target::plain(&url)).await;
        let url = format!("{url}/?burn_ms=5");
        let _load = Generator::start(Target::plain(&url), Connection::New, 25);
        let raised = |it: &ClassRuntimeStatus| !it.last_applied_recommendations.is_empty();
        wait_for_status(ns, "watched", "a floor", TIMEOUT, raised).await;
        let measured = async || {
            let is_measured = |it: &ClassRuntimeStatus| it.is_true("NfrObserved");
            wait_for_status(ns, "watched", "measurements", TIMEOUT, is_measured).await
        };
        let failing = async |what: &str| {
            let has_failed = |it: &ClassRuntimeStatus| {
                let observed = it.conditions.iter().find(|it| it.type_ == "NfrObserved");
                observed.is_some_and(|it| it.reason == "PrometheusUnavailable")
            };
            let before = classes(ns).get("watched").await.unwrap().status.unwrap();
            let status = wait_for_status(ns, "watched", what, TIMEOUT, has_failed).await;
            assert_eq!(status.last_applied_recommendations, before.last_applied_recommendations);
            let observed = status.conditions.into_iter().find(|it| it.type_ == "NfrObserved");
            observed.unwrap().message
        };
        measured().await;

        prometheus.kill();
        let message = failing("a killed Prometheus").await;
        assert!(message.contains("connect"), "{message}");
        prometheus.restart().await;
        measured().await;

        prometheus.set_running(false);
        let message = failing("a Prometheus that hangs").await;
        assert!(message.contains("did not answer in time"), "{message}");
        prometheus.set_running(true);
        measured().await;

        prometheus.damage().await;
        let message = failing("a Prometheus that fails").await;
        assert!(message.contains("rejected the query"), "{message}");
        prometheus.kill();
        prometheus.restart().await;
        measured().await;
    })
    .await;
}
