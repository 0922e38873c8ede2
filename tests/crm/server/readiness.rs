//! Readiness of a CRM that manages a whole cluster. It reconciles all classes, so the test has its
//! own cluster.

use hyper::{Method, StatusCode};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use oprc_crm::kinds::{KNATIVE_SERVICE, Kind};
use oprc_grpc::deployment::GetClusterInfoRequest;
use oprc_tests::{
    TestNamespace,
    class::{hello, request, wait_available, wait_deleted, wait_for, with_odgm},
    crm::{Client, CrmTask, Options, connect, install},
    eventually, in_namespace_of, with_simulated,
};
use serde_json::{Value, json};
use tonic_health::pb::health_check_response::ServingStatus;

use super::{RESPONSE_TIMEOUT, plain, send_request, serving_status, wait_serving};

async fn ready(url: &str) -> (StatusCode, Value) {
    let (status, _, body) =
        send_request(&plain(), Method::GET, &format!("{url}/health/ready"), None, "")
            .await
            .unwrap();
    (status, serde_json::from_str(&body).unwrap())
}

async fn assert_health(url: &str, expected: ServingStatus) {
    for service in ["", "deployment.DeploymentService"] {
        let status = serving_status(&plain(), url, service).await.unwrap();
        assert_eq!(status, expected as i32, "{service:?}");
    }
}

#[tokio::test]
async fn manages_all_namespaces_once_the_crd_is_installed() {
    with_simulated("test-everywhere", 1, async |cluster| {
        in_namespace_of(cluster.clone(), async |ns: &TestNamespace| {
            let crm = CrmTask::start(ns, &Options::default().everywhere()).await;
            let url = format!("http://{}", crm.address);
            // The CRD isn't installed yet.
            eventually("only classes to be missing", RESPONSE_TIMEOUT, || async {
                let (status, body) = ready(&url).await;
                assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
                let only = body["missing"] == json!(["classruntimes"]);
                if only { Ok(()) } else { Err(body.to_string()) }
            })
            .await;
            assert_health(&url, ServingStatus::NotServing).await;

            install(&cluster);
            let client = connect(&url).await;
            wait_serving(&plain(), &url, "").await;
            assert_health(&url, ServingStatus::Serving).await;

            in_namespace_of(cluster.clone(), async |other: &TestNamespace| {
                for namespace in [ns, other] {
                    let mut message = request("class", &with_odgm(&[hello("greet")]));
                    message.namespace.clone_from(&namespace.name);
                    client.clone().deploy(message).await.unwrap();
                    wait_available(namespace, "class").await;
                }
                for namespace in [ns, other] {
                    let message = oprc_grpc::deployment::DeleteDeploymentRequest {
                        deployment_id: "class".to_owned(),
                        namespace: namespace.name.clone(),
                    };
                    client.clone().delete_deployment(message).await.unwrap();
                    wait_deleted(namespace, "class").await;
                }
            })
            .await;
            detects_knative_repeatedly(ns, &url, &client).await;
        })
        .await;
    })
    .await;
}

/// The CRD of Knative Services, without a controller.
fn definition() -> CustomResourceDefinition {
    let Kind { group, version, kind, plural } = &KNATIVE_SERVICE;
    serde_json::from_value(json!({
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": "service"},
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    }))
    .unwrap()
}

/// Waits until CRM reports the Knative capability and template.
async fn wait_for_knative(client: &Client, expected: bool) {
    eventually(&format!("Knative to be detected: {expected}"), RESPONSE_TIMEOUT, || async {
        let info = client.clone().get_cluster_info(GetClusterInfoRequest {}).await;
        let info = info.map_err(|status| format!("{status:?}"))?.into_inner();
        let offered = info.templates.iter().any(|template| template == "knative");
        let same = info.capabilities.get("knative") == Some(&expected) && offered == expected;
        if same { Ok(()) } else { Err(format!("{info:?}")) }
    })
    .await;
}

/// CRM detects Knative while it runs.
async fn detects_knative_repeatedly(ns: &TestNamespace, url: &str, client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(ns.client.clone());
    let definition = definition();
    let name = definition.metadata.name.clone().unwrap();
    wait_for_knative(client, false).await;
    // The detection works repeatedly.
    for _ in 0..2 {
        definitions.create(&PostParams::default(), &definition).await.unwrap();
        wait_for_knative(client, true).await;
        definitions.delete(&name, &DeleteParams::default()).await.unwrap();
        wait_for_knative(client, false).await;
        let absent = |it: Option<&CustomResourceDefinition>| it.is_none();
        wait_for(&definitions, &name, "the CRD to be deleted", RESPONSE_TIMEOUT, absent)
            .await
            .unwrap();
    }
    let (status, body) = ready(url).await;
    assert_eq!(status, StatusCode::OK, "{body}");
}
