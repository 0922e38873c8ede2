//! After the loss of a store, running units are found and adopted.

use hyper::Method;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _, api::ListParams};
use oprc_tests::{
    TestNamespace, eventually,
    pm::{Pm, ROLLOUT_TIMEOUT, Setup, deployment, package},
};
use serde_json::{Value, json};

use crate::two_clusters::with_two_clusters;

fn both(key: &str, version: &str) -> Value {
    let mut both = deployment(key, version);
    both["targetClusters"] = json!(["east", "west"]);
    both
}

/// Names of pods, and their restarts.
async fn pods(ns: &TestNamespace) -> Vec<(String, i32)> {
    let api: Api<Pod> = Api::namespaced(ns.client.clone(), &ns.name);
    let all = api.list(&ListParams::default().labels("oaas.io/owner")).await.unwrap();
    let mut pods: Vec<_> = all
        .iter()
        .map(|pod| {
            let status = pod.status.as_ref().and_then(|it| it.container_statuses.as_ref());
            let restarts = status.into_iter().flatten().map(|it| it.restart_count).sum();
            (pod.name_any(), restarts)
        })
        .collect();
    pods.sort();
    pods
}

#[tokio::test]
async fn adopts_all_orphans_without_restarting_pods() {
    with_two_clusters(async |east, west| {
        let setup = Setup::of([("east", east.crm.url.as_str()), ("west", west.crm.url.as_str())]);
        let pm = Pm::start(&setup).await;
        pm.publish(&package("1.0.0")).await;
        for key in ["shop", "bank"] {
            pm.deploy(&both(key, "1.0.0")).await.unwrap();
        }
        pm.wait_for_condition("shop", "RUNNING").await;
        pm.wait_for_condition("bank", "RUNNING").await;
        let before = (pods(east.ns).await, pods(west.ns).await);

        let pm = pm.restart_without_store().await;
        let orphans = eventually("four orphans", ROLLOUT_TIMEOUT, || async {
            let orphans = pm.get("/orphans").await["items"].clone();
            let all = orphans.as_array().cloned().unwrap_or_default();
            if all.len() == 4 { Ok(all) } else { Err(orphans.to_string()) }
        })
        .await;
        assert!(orphans.iter().all(|it| it["ownership"] == "orphan"), "{orphans:?}");
        let wrong = json!({"deployment": "other"});
        let rejected = adopt(&pm, &orphans[0], &wrong).await.unwrap_err();
        assert!(rejected.contains("by its id"), "{rejected}");
        for orphan in &orphans {
            let request = json!({"deployment": orphan["deployment"]});
            adopt(&pm, orphan, &request).await.unwrap();
        }
        assert_eq!(pm.get("/orphans").await["items"], json!([]));
        for key in ["shop", "bank"] {
            let status = pm.wait_for_condition(key, "RUNNING").await;
            assert_eq!(status["unitsTotal"], 2, "{status}");
        }
        assert_eq!((pods(east.ns).await, pods(west.ns).await), before);

        // It can be updated and deleted again.
        for version in ["1.0.0", "2.0.0"] {
            pm.publish(&package(version)).await;
        }
        pm.deploy(&both("shop", "2.0.0")).await.unwrap();
        pm.wait_for_condition("shop", "RUNNING").await;
        east.exactly("shop.", &[("shop.Sample..east", "2.0.0")]).await;
        for key in ["shop", "bank"] {
            pm.call(Method::DELETE, &format!("/deployments/{key}"), None).await.unwrap();
        }
        for key in ["shop", "bank"] {
            pm.wait_deleted(key).await;
        }
        east.exactly("", &[]).await;
        west.exactly("", &[]).await;
    })
    .await;
}

async fn adopt(pm: &Pm, orphan: &Value, body: &Value) -> Result<Value, String> {
    let part = |name: &str| orphan[name].as_str().unwrap().to_owned();
    let path = format!("/orphans/{}/{}/adopt", part("cluster"), part("id"));
    pm.call(Method::POST, &path, Some(body)).await
}

#[tokio::test]
async fn deletes_an_orphan() {
    with_two_clusters(async |east, west| {
        let setup = Setup::of([("east", east.crm.url.as_str()), ("west", west.crm.url.as_str())]);
        let pm = Pm::start(&setup).await;
        pm.publish(&package("1.0.0")).await;
        let mut request = deployment("shop", "1.0.0");
        request["targetClusters"] = json!(["east"]);
        pm.deploy(&request).await.unwrap();
        pm.wait_for_condition("shop", "RUNNING").await;
        // A unit of a deployment is not an orphan.
        let path = "/orphans/east/shop.Sample..east";
        assert!(pm.call(Method::DELETE, path, None).await.unwrap_err().contains("no orphan"));
        let pm = pm.restart_without_store().await;
        eventually("its deletion", ROLLOUT_TIMEOUT, || pm.call(Method::DELETE, path, None)).await;
        east.exactly("", &[]).await;
    })
    .await;
}
