//! Functions of template `unified` follow their load.

use std::time::Duration;

use oprc_crm::crd::ClassRuntimeStatus;
use oprc_tests::{
    TestNamespace,
    class::{deploy, hello_with_little_cpu, spec_of, url, wait_available, wait_for_status},
    crm::{Crm, Options},
    fixture::{reach, wait_for_response, with_crm},
    generator::Generator,
    load::Connection,
    shared,
};
use serde_json::json;

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
        let options = Options::enforcing(&shared().await.spec().prometheus_url().unwrap());
        with_crm(&options, async |ns: &TestNamespace, crm: &Crm| {
            // Declared as bursty, therefore on Knative.
            let mut busy = hello_with_little_cpu("busy", 8);
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
            wait_for_response(&target).await;
            target.url = format!("{}/?burn_ms=5", target.url);
            let _load = Generator::start(target, Connection::New, 10);
            let limit = Duration::from_secs(60 * u64::try_from(2 * MINUTES).unwrap());
            let moved = |it: &ClassRuntimeStatus| {
                runs_as(it, "busy") == Some("k8s_deployment") && it.phase.as_str() == "Available"
            };
            let status = wait_for_status(ns, "moves", "the migration", limit, moved).await;
            let change = &status.nfr_history[0];
            assert_eq!(change.dimension, "template");
            wait_for_response(&reach(ns, &url(&status, "busy")).await).await;
            proof.held(&change.basis);
        })
        .await;
    }
}
