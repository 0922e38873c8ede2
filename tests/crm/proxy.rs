//! The proxy in front of functions: limits hold under load, and no request is dropped when pods change.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _, api::ListParams, runtime::wait::await_condition};
use oprc_sandbox::within;
use oprc_tests::{
    TestNamespace,
    class::{deploy, hello, spec_of, wait_available},
    crm::{Crm, Options},
    eventually,
    fixture::{address, with_crm},
    http::{get, get_ok},
    load::{Load, Target},
};
use serde_json::{Value, json};

const TIMEOUT: Duration = Duration::from_mins(3);
const LIMIT: u64 = 5;
const CLIENTS: usize = 50;

/// Deploys a class with the function `greet`, and returns the URL that responds.
async fn deployed(ns: &TestNamespace, crm: &Crm, name: &str, spec: &Value) -> String {
    deploy(&crm.client, name, spec).await.unwrap();
    wait_available(ns, name).await;
    let url = address(ns, &format!("{name}--greet")).await;
    // kube-proxy doesn't report when it has programmed the pods.
    eventually("a response", TIMEOUT, || get_ok(&url)).await;
    url
}

/// Numbers of responses by status, and the highest number of requests that the function served at
/// once.
async fn flood(url: &str, requests: usize, clients: usize) -> (BTreeMap<u16, usize>, u64) {
    let responses = stream::iter(0..requests).map(|_| get(url, None)).buffer_unordered(clients);
    let (mut statuses, mut highest) = (BTreeMap::new(), 0);
    for (status, body) in responses.map(Result::unwrap).collect::<Vec<_>>().await {
        *statuses.entry(status.as_u16()).or_default() += 1;
        let body: Value = serde_json::from_str(&body).unwrap();
        highest = highest.max(body["concurrent"].as_u64().unwrap_or(0));
    }
    (statuses, highest)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_a_deployment_hold_under_load() {
    with_crm(&Options::default(), async |ns: &TestNamespace, crm: &Crm| {
        let mut spec = spec_of(&[hello("greet")]);
        spec["selected_template"] = json!("k8s_deployment");
        spec["functions"][0]["config"] = json!({"timeout_ms": 4000});
        spec["functions"][0]["constraints"] = json!({"max_concurrency": LIMIT});
        let url = deployed(ns, crm, "limited", &spec).await;
        let plain = format!("{url}/?sleep_ms=30");
        let (statuses, highest) = flood(&plain, 6 * CLIENTS, CLIENTS).await;
        assert_eq!(statuses, BTreeMap::from([(200, 6 * CLIENTS)]), "all of them wait in the queue");
        assert_eq!(highest, LIMIT);
        // The queue holds 100 calls.
        let (statuses, highest) = flood(&format!("{url}/?sleep_ms=600"), 160, 160).await;
        assert_eq!(highest, LIMIT);
        let [served, rejected, late] =
            [200, 503, 504].map(|it| statuses.get(&it).copied().unwrap_or(0));
        assert_eq!(served + rejected + late, 160, "{statuses:?}");
        assert!(served >= 20 && rejected >= 20, "{statuses:?}");
        let (status, body) = get(&format!("{url}/?sleep_ms=6000"), None).await.unwrap();
        assert_eq!(status, 504, "{body}");
    })
    .await;
}

/// Changes the class under load, and waits until pods of the former generation are deleted.
async fn replace_pods(ns: &TestNamespace, crm: &Crm, name: &str, spec: &Value) {
    let pods: Api<Pod> = Api::namespaced(ns.client.clone(), &ns.name);
    let before = pods.list(&ListParams::default()).await.unwrap();
    deploy(&crm.client, name, spec).await.unwrap();
    wait_available(ns, name).await;
    for pod in before.iter().map(Pod::name_any) {
        let deleted = await_condition(pods.clone(), &pod, |pod: Option<&Pod>| pod.is_none());
        within(&format!("{pod} to be deleted"), TIMEOUT, deleted).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adding_updating_and_removing_the_proxy_drops_no_request() {
    with_crm(&Options::default(), async |ns: &TestNamespace, crm: &Crm| {
        let mut spec = spec_of(&[hello("greet")]);
        spec["functions"][0]["provision"] = json!({"min_scale": 2});
        let url = deployed(ns, crm, "guarded", &spec).await;
        let load = Load::begin(Target::plain(&url));
        // Some calls wait in the queue.
        spec["functions"][0]["constraints"] = json!({"max_concurrency": 6});
        replace_pods(ns, crm, "guarded", &spec).await;
        let pods: Api<Pod> = Api::namespaced(ns.client.clone(), &ns.name);
        for pod in pods.list(&ListParams::default()).await.unwrap() {
            let init = pod.spec.and_then(|it| it.init_containers).unwrap_or_default();
            assert_eq!(init.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["proxy"]);
        }
        spec["functions"][0]["config"] = json!({"env": {"COLOUR": "green"}});
        replace_pods(ns, crm, "guarded", &spec).await;
        spec["functions"][0].as_object_mut().unwrap().remove("constraints");
        replace_pods(ns, crm, "guarded", &spec).await;
        let sent = load.end().await;
        assert!(sent.values().sum::<usize>() >= 100, "{sent:?}");
    })
    .await;
}
