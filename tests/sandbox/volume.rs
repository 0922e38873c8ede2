//! Volumes of StatefulSets.

use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::PersistentVolumeClaim};
use kube::{Api, api::PostParams, runtime::wait::await_condition};
use oprc_sandbox::within;
use oprc_tests::{
    TestNamespace, in_namespace,
    objects::{READY_TIMEOUT, hello_template},
};
use serde_json::json;

#[tokio::test]
async fn binds_a_volume_for_each_replica_of_a_stateful_set() {
    in_namespace(async |ns: &TestNamespace| {
        let mut template = hello_template("keeper");
        template["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
        let set: StatefulSet = serde_json::from_value(json!({
            "metadata": {"name": "keeper"},
            "spec": {
                "serviceName": "keeper",
                "replicas": 2,
                "selector": {"matchLabels": {"app": "keeper"}},
                "template": template,
                "volumeClaimTemplates": [{
                    "metadata": {"name": "data"},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
                }],
            },
        }))
        .unwrap();
        let sets: Api<StatefulSet> = Api::namespaced(ns.client.clone(), &ns.name);
        sets.create(&PostParams::default(), &set).await.unwrap();
        let ready = |set: Option<&StatefulSet>| {
            set.and_then(|set| set.status.as_ref()?.ready_replicas).unwrap_or_default() == 2
        };
        within("both replicas", READY_TIMEOUT, await_condition(sets, "keeper", ready)).await.unwrap();
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(ns.client.clone(), &ns.name);
        for name in ["data-keeper-0", "data-keeper-1"] {
            let claim = claims.get(name).await.unwrap();
            assert_eq!(claim.status.unwrap().phase.as_deref(), Some("Bound"), "{name}");
        }
    })
    .await;
}
