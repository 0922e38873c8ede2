//! Objects that tests create.

use std::time::{Duration, Instant};

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{Pod, Service},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, LogParams, PostParams},
    runtime::wait::await_condition,
};
use oprc_sandbox::{deployment_ready, within};
use serde_json::{Value, json};

use crate::{HELLO, TestNamespace, eventually, http::get_ok};

/// Bound on the start of a pod.
pub const READY_TIMEOUT: Duration = Duration::from_mins(2);

/// A security context that conforms to the pod security standard `restricted`. The test images have
/// a non-root user.
pub fn restricted() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": true,
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

pub fn hello_template(name: &str) -> Value {
    json!({
        "metadata": {
            "labels": {"app": name, "oaas.io/owner": name},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
        },
        "spec": {
            "terminationGracePeriodSeconds": 5,
            "containers": [{
                "name": "function",
                "image": HELLO,
                "imagePullPolicy": "Never",
                "ports": [{"name": "http", "containerPort": 8080}],
                "readinessProbe": {
                    "httpGet": {"path": "/healthz", "port": "http"},
                    "periodSeconds": 1, "timeoutSeconds": 3, "failureThreshold": 100,
                },
                "resources": {"requests": {"cpu": "50m", "memory": "16Mi"}},
                "securityContext": restricted(),
            }],
        },
    })
}

/// Deploys the sample function with a Service, waits until it responds, and returns its URL.
pub async fn deploy_hello(ns: &TestNamespace, name: &str) -> String {
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": hello_template(name)},
    }))
    .unwrap();
    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]},
    }))
    .unwrap();
    let create = PostParams::default();
    let deployments: Api<Deployment> = Api::namespaced(ns.client.clone(), &ns.name);
    deployments.create(&create, &deployment).await.unwrap();
    let services: Api<Service> = Api::namespaced(ns.client.clone(), &ns.name);
    let service = services.create(&create, &service).await.unwrap();
    deployment_ready(&ns.client, &ns.name, name, READY_TIMEOUT).await.unwrap();
    let url = format!("http://{}", service.spec.unwrap().cluster_ip.unwrap());
    // kube-proxy doesn't report when it has programmed the pod.
    eventually("a response of the Service", READY_TIMEOUT, || get_ok(&url)).await;
    url
}

/// The only pod with a label `app`.
pub async fn pod_of(ns: &TestNamespace, app: &str) -> Pod {
    let pods: Api<Pod> = Api::namespaced(ns.client.clone(), &ns.name);
    let mut found =
        pods.list(&ListParams::default().labels(&format!("app={app}"))).await.unwrap().items;
    assert_eq!(found.len(), 1, "pods of {app}");
    found.remove(0)
}

/// Runs the sample function's client in a pod until it succeeds, and returns its output. kube-proxy
/// doesn't report when it has programmed a Service.
pub async fn get_from_pod(ns: &TestNamespace, url: &str) -> String {
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        let (succeeded, output) = run_client_pod(ns, url).await;
        if succeeded {
            return output;
        }
        assert!(Instant::now() < deadline, "{url}: {output}");
    }
}

/// Runs the sample function's client in a pod once.
async fn run_client_pod(ns: &TestNamespace, url: &str) -> (bool, String) {
    let pods: Api<Pod> = Api::namespaced(ns.client.clone(), &ns.name);
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"generateName": "client-"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{
                "name": "client", "image": HELLO, "imagePullPolicy": "Never", "args": ["get", url],
                "securityContext": restricted(),
            }],
        },
    }))
    .unwrap();
    let pod = pods.create(&PostParams::default(), &pod).await.unwrap();
    let name = pod.metadata.name.unwrap();
    let finished = |pod: Option<&Pod>| {
        let phase = pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    let finished = await_condition(pods.clone(), &name, finished);
    let pod = within("the client pod to finish", READY_TIMEOUT, finished).await.unwrap();
    let succeeded = pod.and_then(|pod| pod.status?.phase).is_some_and(|phase| phase == "Succeeded");
    let output = pods.logs(&name, &LogParams::default()).await.unwrap();
    pods.delete(&name, &DeleteParams::default().grace_period(0)).await.unwrap();
    (succeeded, output)
}

/// Metadata with a name only.
pub fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}
