//! What CRM says before it can do anything. It serves a whole cluster here, under the account that
//! it has then; such a CRM takes all classes for its own, so the cluster is the test's own, too.

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

use super::{RESPONSE_TIMEOUT, ask, plain, serves, serving};

/// Readiness over HTTP.
async fn ready(url: &str) -> (StatusCode, Value) {
    let (status, _, body) =
        ask(&plain(), Method::GET, &format!("{url}/health/ready"), None, "").await.unwrap();
    (status, serde_json::from_str(&body).unwrap())
}

async fn assert_health(url: &str, expected: ServingStatus) {
    for service in ["", "deployment.DeploymentService"] {
        let status = serving(&plain(), url, service).await.unwrap();
        assert_eq!(status, expected as i32, "{service:?}");
    }
}

#[tokio::test]
async fn a_whole_cluster_is_served_once_nothing_is_missing() {
    with_simulated("test-everywhere", 1, async |cluster| {
        in_namespace_of(cluster.clone(), async |ns: &TestNamespace| {
            let crm = CrmTask::start(ns, &Options::default().everywhere()).await;
            let url = format!("http://{}", crm.address);
            // All there is to watch but classes, which nobody has heard of here.
            eventually("only classes to be missing", RESPONSE_TIMEOUT, || async {
                let (status, said) = ready(&url).await;
                assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{said}");
                let only = said["missing"] == json!(["classruntimes"]);
                if only { Ok(()) } else { Err(said.to_string()) }
            })
            .await;
            assert_health(&url, ServingStatus::NotServing).await;

            install(&cluster);
            let client = connect(&url).await;
            serves(&plain(), &url, "").await;
            assert_health(&url, ServingStatus::Serving).await;

            in_namespace_of(cluster.clone(), async |other: &TestNamespace| {
                for there in [ns, other] {
                    let mut asked = request("class", &with_odgm(&[hello("greet")]));
                    asked.namespace.clone_from(&there.name);
                    client.clone().deploy(asked).await.unwrap();
                    wait_available(there, "class").await;
                }
                for there in [ns, other] {
                    let asked = oprc_grpc::deployment::DeleteDeploymentRequest {
                        deployment_id: "class".to_owned(),
                        namespace: there.name.clone(),
                    };
                    client.clone().delete_deployment(asked).await.unwrap();
                    wait_deleted(there, "class").await;
                }
            })
            .await;
            knative_comes_and_goes(ns, &url, &client).await;
        })
        .await;
    })
    .await;
}

/// What Knative Serving defines, as far as CRM looks: nobody answers for it here.
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

/// Waits until a CRM says whether there is Knative, and can be asked for it.
async fn says_of_knative(client: &Client, expected: bool) {
    eventually(&format!("Knative to be there: {expected}"), RESPONSE_TIMEOUT, || async {
        let info = client.clone().get_cluster_info(GetClusterInfoRequest {}).await;
        let info = info.map_err(|status| format!("{status:?}"))?.into_inner();
        let offered = info.templates.iter().any(|template| template == "knative");
        let same = info.capabilities.get("knative") == Some(&expected) && offered == expected;
        if same { Ok(()) } else { Err(format!("{info:?}")) }
    })
    .await;
}

/// What the cluster can do may change while CRM runs.
async fn knative_comes_and_goes(ns: &TestNamespace, url: &str, client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(ns.client.clone());
    let definition = definition();
    let name = definition.metadata.name.clone().unwrap();
    says_of_knative(client, false).await;
    // What has come once may come again.
    for _ in 0..2 {
        definitions.create(&PostParams::default(), &definition).await.unwrap();
        says_of_knative(client, true).await;
        definitions.delete(&name, &DeleteParams::default()).await.unwrap();
        says_of_knative(client, false).await;
        let absent = |it: Option<&CustomResourceDefinition>| it.is_none();
        wait_for(&definitions, &name, "the definition to be gone", RESPONSE_TIMEOUT, absent)
            .await
            .unwrap();
    }
    let (status, said) = ready(url).await;
    assert_eq!(status, StatusCode::OK, "{said}");
}
