//! Security contexts of pods. All test namespaces enforce the pod security standard `restricted`.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::ListParams};
use oprc_tests::{
    TestNamespace,
    class::{deploy, hello, spec_of, wait_available, wait_degraded},
    crm::{Crm, Options},
    fixture::with_crm,
    in_baseline_namespace,
};
use serde_json::{Value, json};

/// A function that requests to run as root.
fn as_root() -> Value {
    let mut function = hello("greet");
    function["provision"]["security"] = json!({"level": "baseline", "run_as_user": 0});
    spec_of(&[function])
}

#[tokio::test]
async fn runs_as_root_in_a_baseline_namespace() {
    in_baseline_namespace(async |ns: &TestNamespace| {
        let crm = Crm::start(ns, &Options::default()).await;
        deploy(&crm.client, "rooted", &as_root()).await.unwrap();
        wait_available(ns, "rooted").await;
        let pods: Api<Pod> = Api::namespaced(ns.client.clone(), &ns.name);
        let own = ListParams::default().labels("oaas.io/owner=rooted");
        let pods = pods.list(&own).await.unwrap().items;
        assert_eq!(pods.len(), 1);
        let container = &pods[0].spec.as_ref().unwrap().containers[0];
        let context = serde_json::to_value(&container.security_context).unwrap();
        assert_eq!(context, json!({"runAsUser": 0}));
    })
    .await;
}

#[tokio::test]
async fn reports_pods_that_pod_security_rejects() {
    with_crm(&Options::default(), async |ns: &TestNamespace, crm: &Crm| {
        deploy(&crm.client, "rooted", &as_root()).await.unwrap();
        let status = wait_degraded(ns, "rooted", "PodsNotCreated").await;
        let message = status.message.unwrap();
        assert!(message.contains("violates PodSecurity \"restricted"), "{message}");
        deploy(&crm.client, "rooted", &spec_of(&[hello("greet")])).await.unwrap();
        wait_available(ns, "rooted").await;
    })
    .await;
}
