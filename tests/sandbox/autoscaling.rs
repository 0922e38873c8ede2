//! Autoscaling on real nodes.

use std::time::Duration;

use futures::future::{join_all, select};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::{Api, api::PostParams, runtime::wait::await_condition};
use oprc_sandbox::within;
use oprc_tests::{TestNamespace, http::get_ok, in_namespace, objects::deploy_hello};
use serde_json::json;

#[tokio::test]
async fn scales_up_under_load() {
    in_namespace(async |ns: &TestNamespace| {
        let url = format!("{}/?burn_ms=100", deploy_hello(ns, "busy").await);
        let autoscaler = serde_json::from_value(json!({
            "metadata": {"name": "busy"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "busy"},
                "minReplicas": 1,
                "maxReplicas": 3,
                "metrics": [{
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
                }],
            },
        }));
        let autoscalers: Api<HorizontalPodAutoscaler> =
            Api::namespaced(ns.client.clone(), &ns.name);
        autoscalers.create(&PostParams::default(), &autoscaler.unwrap()).await.unwrap();
        let scaled = |autoscaler: Option<&HorizontalPodAutoscaler>| {
            let status = autoscaler.and_then(|autoscaler| autoscaler.status.as_ref());
            status.is_some_and(|status| status.current_replicas.unwrap_or_default() >= 2)
        };
        let scaled = within(
            "a second replica",
            Duration::from_mins(5),
            await_condition(autoscalers, "busy", scaled),
        );
        // Two clients keep one CPU busy until the Deployment has scaled up. A busy pod may drop
        // requests.
        let load = join_all((0..2).map(|_| async {
            for _ in 0..3000 {
                if get_ok(&url).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }));
        match select(Box::pin(scaled), Box::pin(load)).await {
            futures::future::Either::Left((scaled, _)) => drop(scaled.unwrap()),
            futures::future::Either::Right(_) => panic!("the load ended before the Deployment scaled up"),
        }
    })
    .await;
}
