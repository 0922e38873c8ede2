//! Functions of template `unified` follow their load.

use std::time::Duration;

use oprc_crm::crd::ClassRuntimeStatus;
use oprc_tests::{
    TestNamespace,
    class::{deploy, hello, spec_of, url, wait_available, wait_for_status},
    crm::{Crm, Options},
    eventually,
    fixture::{reach, with_crm},
    generator::Generator,
    http::{get, get_ok},
    load::Connection,
    shared,
};
use serde_json::json;

const TIMEOUT: Duration = Duration::from_mins(3);

fn runs_as<'a>(status: &'a ClassRuntimeStatus, key: &str) -> Option<&'a str> {
    status.functions.iter().find(|it| it.key == key)?.runs_as.as_deref()
}

mod proof {
    use oprc_tests::proof;

    use super::*;

    /// CRM decides by the load of ten minutes.
    const MINUTES: usize = 11;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn steady_load_moves_a_function_from_knative_to_a_deployment() {
        let proof =
            proof::begin("steady load on Knative, in minutes until it is migrated", 0, MINUTES);
        if !proof::whole() {
            return;
        }
        let options = Options::default()
            .with("OPRC_CRM_FEATURES_PROMETHEUS", "true")
            .with("OPRC_CRM_FEATURES_NFR_ENFORCEMENT", "true")
            .with("OPRC_CRM_PROM_URL", &shared().await.spec().prometheus_url().unwrap())
            .with("OPRC_CRM_PROM_SCRAPE_INTERVAL", "5s");
        with_crm(&options, async |ns: &TestNamespace, crm: &Crm| {
            let mut busy = hello("busy");
            busy["provision"]["requests"] = json!({"cpu": "100m", "memory": "16Mi"});
            busy["provision"]["limits"] = json!({"cpu": "100m", "memory": "64Mi"});
            // Declared as bursty, therefore on Knative.
            busy["provision"]["min_scale"] = json!(1);
            busy["provision"]["max_scale"] = json!(8);
            busy["config"] = json!({"timeout_ms": 5000});
            let mut spec = spec_of(&[busy]);
            spec["selected_template"] = json!("unified");
            spec["telemetry"] = json!({"metrics": false});
            spec["nfr_requirements"] = json!({"max_latency_ms": 1000});
            spec["nfr"] = json!({"enforcement": {"mode": "enforce", "dimensions": ["template"]}});
            deploy(&crm.client, "moves", &spec).await.unwrap();
            let status = wait_available(ns, "moves").await;
            assert_eq!(runs_as(&status, "busy"), Some("knative"));
            let mut target = reach(ns, &url(&status, "busy")).await;
            eventually("a response", TIMEOUT, || async {
                let (status, body) = get(&target.url, target.host.as_deref()).await?;
                if status == 200 { Ok(()) } else { Err(format!("{status}: {body}")) }
            })
            .await;
            target.url = format!("{}/?burn_ms=5", target.url);
            let _load = Generator::start(target, Connection::New, 10);
            let limit = Duration::from_secs(60 * u64::try_from(2 * MINUTES).unwrap());
            let moved = |it: &ClassRuntimeStatus| {
                runs_as(it, "busy") == Some("k8s_deployment") && it.phase.as_str() == "Available"
            };
            let status = wait_for_status(ns, "moves", "the migration", limit, moved).await;
            let change = &status.nfr_history[0];
            assert_eq!(change.dimension, "template");
            let plain = reach(ns, &url(&status, "busy")).await;
            eventually("a response", TIMEOUT, || get_ok(&plain.url)).await;
            proof.held(&change.basis);
        })
        .await;
    }
}
