//! Knative serves the sample function and scales it to zero and back.

use std::time::Duration;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams},
    runtime::wait::await_condition,
};
use oprc_sandbox::within;
use oprc_tests::{
    HELLO, TestNamespace, eventually,
    http::{get, get_ok},
    in_namespace,
    objects::restricted,
};
use serde_json::{Value, json};

const READY_TIMEOUT: Duration = Duration::from_mins(5);

#[tokio::test]
async fn scales_to_zero_and_back() {
    in_namespace(async |ns: &TestNamespace| {
        let kind =
            ApiResource::from_gvk(&GroupVersionKind::gvk("serving.knative.dev", "v1", "Service"));
        let services: Api<DynamicObject> = Api::namespaced_with(ns.client.clone(), &ns.name, &kind);
        let service: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "serving.knative.dev/v1",
            "kind": "Service",
            "metadata": {"name": "sleeper"},
            "spec": {"template": {
                "metadata": {"annotations": {"autoscaling.knative.dev/window": "6s"}},
                "spec": {"containers": [{
                    "image": HELLO, "imagePullPolicy": "Never", "ports": [{"containerPort": 8080}],
                    "securityContext": restricted(),
                }]},
            }},
        }))
        .unwrap();
        services.create(&PostParams::default(), &service).await.unwrap();
        let ready = |service: Option<&DynamicObject>| {
            let conditions = service.and_then(|service| service.data.pointer("/status/conditions"));
            let conditions = conditions.and_then(Value::as_array).cloned().unwrap_or_default();
            conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
        };
        within("the Knative service", READY_TIMEOUT, await_condition(services, "sleeper", ready))
            .await
            .unwrap();

        let gateways: Api<Service> = Api::namespaced(ns.client.clone(), "kourier-system");
        let gateway = gateways.get("kourier").await.unwrap().spec.unwrap().cluster_ip.unwrap();
        let url = format!("http://{gateway}/?name=sleeper");
        let host = format!("sleeper.{}.sandbox.test", ns.name);
        let call = async || {
            let (status, body) = get(&url, Some(&host)).await?;
            let expected = status == 200 && body.contains("Hello, sleeper!");
            if expected { Ok(()) } else { Err(format!("{status} {body}")) }
        };
        eventually("a response", READY_TIMEOUT, &call).await;

        let deployments: Api<Deployment> = Api::namespaced(ns.client.clone(), &ns.name);
        let name = deployments.list(&ListParams::default()).await.unwrap().items[0].name_any();
        let is_scaled_to_zero = |deployment: Option<&Deployment>| {
            let status = deployment.and_then(|deployment| deployment.status.as_ref());
            status.is_some_and(|status| status.replicas.unwrap_or_default() == 0)
        };
        within(
            "zero replicas",
            READY_TIMEOUT,
            await_condition(deployments, &name, is_scaled_to_zero),
        )
        .await
        .unwrap();
        eventually("a response after scaling from zero", READY_TIMEOUT, &call).await;
        // The gateway rejects unknown hosts.
        assert!(get_ok(&url).await.is_err());
    })
    .await;
}
