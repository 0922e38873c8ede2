//! What pods may do. That they keep to the pod security standard `restricted` every test proves: its
//! namespace takes no others.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::ListParams};
use oprc_tests::{
    Place,
    class::{available, degraded, deploy, hello, of},
    crm::{Crm, Options},
    in_baseline_namespace,
    fixture::with_crm,
};
use serde_json::{Value, json};

/// A function that runs as root, which a class has to ask for.
fn as_root() -> Value {
    let mut function = hello("greet");
    function["provision"]["security"] = json!({"level": "baseline", "run_as_user": 0});
    of(&[function])
}

#[tokio::test]
async fn what_needs_more_runs_where_it_may() {
    in_baseline_namespace(async |place: &Place| {
        let crm = Crm::start(place, &Options::default()).await;
        deploy(&crm.client, "rooted", &as_root()).await.unwrap();
        available(place, "rooted").await;
        let pods: Api<Pod> = Api::namespaced(place.client.clone(), &place.namespace);
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
async fn what_needs_more_is_told_where_it_may_not_run() {
    with_crm(&Options::default(), async |place: &Place, crm: &Crm| {
        deploy(&crm.client, "rooted", &as_root()).await.unwrap();
        let status = degraded(place, "rooted", "PodsNotCreated").await;
        let message = status.message.unwrap();
        assert!(message.contains("violates PodSecurity \"restricted"), "{message}");
        deploy(&crm.client, "rooted", &of(&[hello("greet")])).await.unwrap();
        available(place, "rooted").await;
    })
    .await;
}
