//! Memory of functions that need more than they have.

use std::time::Duration;

use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Container, events::v1::Event},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{Api, api::ListParams};
use oprc_crm::crd::ClassRuntimeStatus;
use oprc_tests::{
    TestNamespace,
    class::{classes, deploy, hello, spec_of, wait_available, wait_for_status},
    crm::{Crm, Options},
    eventually,
    fixture::{address, wait_for_response, with_crm},
    generator::Generator,
    http::get,
    load::{Connection, Target},
    shared,
};
use serde_json::{Value, json};

const TIMEOUT: Duration = Duration::from_mins(3);
const REQUEST: f64 = 32.0 * MIB;
const LIMIT: f64 = 64.0 * MIB;
const MIB: f64 = 1_048_576.0;
/// The cap that CRM is configured with.
const MAX: f64 = 512.0 * MIB;

fn spec(mode: &str) -> Value {
    let mut keeps = hello("keeps");
    keeps["provision"]["requests"] = json!({"cpu": "10m", "memory": "32Mi"});
    keeps["provision"]["limits"] = json!({"memory": "64Mi"});
    let mut spec = spec_of(&[keeps]);
    spec["selected_template"] = json!("k8s_deployment");
    spec["telemetry"] = json!({"metrics": false});
    spec["nfr"] = json!({"enforcement": {"mode": mode, "dimensions": ["memory"]}});
    spec
}

async fn options() -> Options {
    Options::enforcing(&shared().await.spec().prometheus_url().unwrap())
        .with("OPRC_CRM_LIMITS_MAX_MEMORY", "512Mi")
        .with("OPRC_CRM_ANALYZER_URGENT_INTERVAL_SECS", "5")
        .with("OPRC_CRM_ANALYZER_INTERVAL_SECS", "5")
}

async fn deployed(ns: &TestNamespace, crm: &Crm, mode: &str) -> String {
    deploy(&crm.client, mode, &spec(mode)).await.unwrap();
    wait_available(ns, mode).await;
    let url = address(ns, &format!("{mode}--keeps")).await;
    wait_for_response(&Target::plain(&url)).await;
    url
}

fn bytes(quantity: &Quantity) -> f64 {
    kube_quantity::ParsedQuantity::try_from(quantity).unwrap().to_bytes_f64().unwrap()
}

/// Request and limit of the function's container.
async fn memory(ns: &TestNamespace, class: &str) -> (f64, f64) {
    let api: Api<Deployment> = Api::namespaced(ns.client.clone(), &ns.name);
    let deployment = api.get(&format!("{class}--keeps")).await.unwrap();
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    let is_function = |it: &&Container| it.name == "function";
    let container = pod.containers.iter().find(is_function).unwrap();
    let resources = container.resources.clone().unwrap();
    (bytes(&resources.requests.unwrap()["memory"]), bytes(&resources.limits.unwrap()["memory"]))
}

/// The recommended request.
fn recommended(status: &ClassRuntimeStatus) -> Option<f64> {
    let found = status.nfr_recommendations.iter().find(|it| it.dimension == "memory")?;
    Some(found.target)
}

fn kills(status: &ClassRuntimeStatus) -> i32 {
    status.oom_kills.iter().map(|it| it.count).sum()
}

async fn is_reported(ns: &TestNamespace, class: &str) {
    let events: Api<Event> = Api::namespaced(ns.client.clone(), &ns.name);
    eventually("an Event", TIMEOUT, || async {
        let all = events.list(&ListParams::default()).await.map_err(|it| it.to_string())?;
        let is_kill = |it: &Event| {
            it.reason.as_deref() == Some("OOMKilled")
                && it.regarding.as_ref().and_then(|it| it.name.as_deref()) == Some(class)
        };
        all.iter().find(|it| is_kill(it)).map(|_| ()).ok_or_else(|| "no Event".to_owned())
    })
    .await;
}

#[tokio::test]
async fn memory_is_raised_after_an_out_of_memory_kill() {
    with_crm(&options().await, async |ns: &TestNamespace, crm: &Crm| {
        let url = deployed(ns, crm, "enforce").await;
        // More than the limit; the function is killed before it answers.
        let answer = get(&format!("{url}/?keep_mb=100"), None).await;
        assert!(!matches!(&answer, Ok((status, _)) if *status == 200), "{answer:?}");
        let noticed = |it: &ClassRuntimeStatus| kills(it) == 1;
        wait_for_status(ns, "enforce", "the kill", TIMEOUT, noticed).await;
        is_reported(ns, "enforce").await;
        let raised = |it: &ClassRuntimeStatus| {
            it.last_applied_recommendations.iter().any(|it| it.target > REQUEST)
                && it.phase.as_str() == "Available"
        };
        let status = wait_for_status(ns, "enforce", "more memory", TIMEOUT, raised).await;
        let (request, limit) = memory(ns, "enforce").await;
        assert!(request > REQUEST && limit > LIMIT && limit <= MAX, "{request} {limit}");
        assert!(status.nfr_history[0].basis.contains("out of memory"), "{status:?}");
    })
    .await;
}

mod proof {
    use oprc_tests::proof;

    use super::*;

    /// Megabytes of growth until an instance is killed, less than the limit.
    const GROWTH: u32 = 50;
    /// The time of that growth in minutes: CRM needs five to see it.
    const MINUTES: usize = 8;

    /// A class that is only observed is killed some time after its memory was recommended. One with
    /// enforcement gets more before that.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn growing_memory_is_raised_before_an_instance_is_killed() {
        let proof = proof::begin("growing memory, in minutes until it is exhausted", 0, MINUTES);
        if !proof::whole() {
            return;
        }
        with_crm(&options().await, async |ns: &TestNamespace, crm: &Crm| {
            let growing = ["observe", "enforce"].map(async |mode| {
                let url = format!("{}/?keep_mb=1", deployed(ns, crm, mode).await);
                let period = Duration::from_secs(60 * u64::try_from(MINUTES).unwrap()) / GROWTH;
                Generator::every(Target::plain(&url), Connection::New, period)
            });
            let _growing = futures::future::join_all(growing).await;
            let limit = Duration::from_secs(60 * u64::try_from(2 * MINUTES).unwrap());
            let advised = |it: &ClassRuntimeStatus| recommended(it).is_some_and(|it| it > REQUEST);
            let status = wait_for_status(ns, "observe", "a recommendation", limit, advised).await;
            assert_eq!(kills(&status), 0, "{status:?}");
            let more = recommended(&status).unwrap();
            let raised = |it: &ClassRuntimeStatus| {
                it.last_applied_recommendations.iter().any(|it| it.target > REQUEST)
                    && it.phase.as_str() == "Available"
            };
            let status = wait_for_status(ns, "enforce", "more memory", TIMEOUT, raised).await;
            assert_eq!(kills(&status), 0, "{status:?}");
            let (request, higher) = memory(ns, "enforce").await;
            assert!(request > REQUEST && higher > LIMIT && higher <= MAX, "{request} {higher}");
            let killed = |it: &ClassRuntimeStatus| kills(it) > 0;
            wait_for_status(ns, "observe", "the kill", limit, killed).await;
            is_reported(ns, "observe").await;
            let status = classes(ns).get("enforce").await.unwrap().status.unwrap();
            assert_eq!(kills(&status), 0, "{status:?}");
            proof.held(&format!(
                "{:.0} MiB recommended before an instance with {:.0} MiB was killed; with enforcement the limit became {:.0} MiB and none was killed",
                more / MIB,
                LIMIT / MIB,
                higher / MIB
            ));
        })
        .await;
    }
}
