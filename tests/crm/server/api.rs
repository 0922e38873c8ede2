//! The gRPC API.

use std::collections::BTreeSet;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request, StatusCode};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use k8s_openapi::api::events::v1::Event as KubeEvent;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use oprc_grpc::{
    CORRELATION,
    deployment::{
        GetClusterInfoResponse, GetDeploymentStatusRequest,
        deployment_service_client::DeploymentServiceClient,
    },
};
use oprc_tests::{
    TestNamespace,
    class::{classes, hello, request, spec_of, wait_for_all},
    crm::{Crm, CrmProcess, Options},
    eventually, in_namespace,
};
use prost::Message as _;
use serde_json::{Value, json};
use tonic::Code;
use tonic_types::StatusExt as _;

use super::{
    RESPONSE_TIMEOUT, plain,
    reflection_client::{self, Events, Reflected},
    send_request, serving_status, wait_serving,
};

/// Pages, filters and invalid parameters of `ListClassRuntimes`.
async fn check_listing(api: &Reflected, names: &[String]) {
    let (mut seen, mut token) = (Vec::new(), json!(""));
    loop {
        let message = json!({"page_size": 2, "page_token": token});
        let page = api.call("ListClassRuntimes", message).await.unwrap();
        let page_names = names_of(&page);
        assert!((1..=2).contains(&page_names.len()), "{page}");
        seen.extend(page_names);
        token = page["next_page_token"].clone();
        if token == "" {
            break;
        }
    }
    assert_eq!(seen, names);
    for (filter, found) in [
        (json!({"environment": "prod"}), &names[..1]),
        (json!({"package": "shop"}), &names[..2]),
        (json!({"package": "shop", "environment": "stage"}), &names[1..2]),
        (json!({"label_selector": "team=a,tier=b"}), &names[3..4]),
        (json!({"label_selector": "team=b"}), &[]),
        (json!({"phase": "Pending"}), names),
        (json!({"phase": "Available"}), &[]),
    ] {
        let page = api.call("ListClassRuntimes", filter.clone()).await.unwrap();
        assert_eq!(names_of(&page), found, "{filter}");
    }
    for wrong in [
        json!({"phase": "Splendid"}),
        json!({"page_size": -1}),
        json!({"page_token": "x"}),
        json!({"label_selector": "team"}),
    ] {
        let rejected = api.call("ListClassRuntimes", wrong.clone()).await.unwrap_err();
        assert_eq!(rejected.code(), Code::InvalidArgument, "{wrong}");
    }
}

#[tokio::test]
async fn a_reflection_client_deploys_watches_lists_and_deletes() {
    in_namespace(async |ns: &TestNamespace| {
        let crm = Crm::start(ns, &Options::default()).await;
        let api = Reflected::at(plain(), &crm.url).await;
        let info = api.call("GetClusterInfo", json!({})).await.unwrap();
        assert_eq!(info["capabilities"]["odgm"], true, "{info}");

        let mut events = open_watch(&api, json!({})).await;
        assert_eq!(events.next().await["kind"], "SNAPSHOT_BEGIN");
        let end = events.next().await;
        assert_eq!(end["kind"], "SNAPSHOT_END");

        let names: Vec<String> = (0..5).map(|at| format!("class-{at}")).collect();
        for (at, name) in names.iter().enumerate() {
            let mut spec = spec_of(&[hello("greet")]);
            spec["paused"] = json!(true);
            spec["target_environment"] = json!(if at == 0 { "prod" } else { "stage" });
            spec["deployment_unit"] =
                json!({"id": name, "package": if at < 2 { "shop" } else { "bank" }});
            let response =
                api.call("Deploy", json!({"deployment_id": name, "spec": spec})).await.unwrap();
            assert_eq!(response["class_runtime"]["deployment_id"], *name, "{response}");
        }
        let label = json!({"metadata": {"labels": {"team": "a", "tier": "b"}}});
        let merge = Patch::Merge(&label);
        classes(ns).patch("class-3", &PatchParams::default(), &merge).await.unwrap();
        // Deltas, until all classes are in the expected state.
        let (mut matched, mut last) = (BTreeSet::new(), end.clone());
        while matched.len() < 5 {
            last = next_change(&mut events).await;
            assert_eq!(last["kind"], "CHANGED", "{last}");
            let class = &last["class_runtime"];
            let name = class["name"].as_str().unwrap();
            let marked = name != "class-3" || class["labels"]["team"] == "a";
            if class["status"]["reason"] == "Paused" && marked {
                matched.insert(name.to_owned());
            }
        }

        let one =
            api.call("GetDeploymentStatus", json!({"deployment_id": "class-3"})).await.unwrap();
        assert_eq!(one["class_runtime"]["labels"]["tier"], "b");
        assert_eq!(one["class_runtime"]["status"]["state"], "PENDING");

        check_listing(&api, &names).await;

        let rejected =
            api.call("GetOdgmStatus", json!({"deployment_id": "class-0"})).await.unwrap_err();
        assert_eq!(rejected.code(), Code::FailedPrecondition);
        assert_eq!(
            rejected.get_error_details().error_info().unwrap().reason,
            "DATA_GRID_NOT_ENABLED"
        );

        // A resumed watch delivers what was missed; an unknown token starts a new snapshot.
        let mut resumed = open_watch(&api, json!({"resume_token": last["resume_token"]})).await;
        assert_eq!(resumed.next().await["kind"], "CONTACT", "nothing was missed");
        let mut from_the_end = open_watch(&api, json!({"resume_token": end["resume_token"]})).await;
        assert_eq!(from_the_end.next().await["kind"], "CHANGED");
        let mut unknown_token = open_watch(&api, json!({"resume_token": "made-up.7"})).await;
        assert_eq!(unknown_token.next().await["kind"], "SNAPSHOT_BEGIN");
        for _ in 0..5 {
            assert_eq!(unknown_token.next().await["kind"], "SNAPSHOT");
        }
        assert_eq!(unknown_token.next().await["kind"], "SNAPSHOT_END");

        let deleted =
            api.call("DeleteDeployment", json!({"deployment_id": "class-4"})).await.unwrap();
        assert_eq!(deleted["accepted"], true);
        for stream in [&mut resumed, &mut unknown_token, &mut events] {
            loop {
                let event = next_change(stream).await;
                assert_eq!(event["class_runtime"]["name"], "class-4", "{event}");
                if event["kind"] == "DELETED" {
                    break;
                }
                assert_eq!(event["kind"], "CHANGED", "{event}");
            }
        }
        for method in ["GetDeploymentStatus", "DeleteDeployment"] {
            let missing = api.call(method, json!({"deployment_id": "class-4"})).await;
            assert_eq!(missing.unwrap_err().code(), Code::NotFound, "{method}");
        }
    })
    .await;
}

/// A watch, after its first event: what the cluster has.
async fn open_watch(api: &Reflected, request: Value) -> Events {
    let mut events = api.watch(request).await;
    let first = events.next().await;
    assert_eq!(first["kind"], "CLUSTER_INFO", "{first}");
    assert_eq!(first["cluster_info"]["capabilities"]["odgm"], true, "{first}");
    assert!(first["cluster_info"]["platform"]["floors"].is_object(), "{first}");
    events
}

/// The next event about a class; events about the cluster may come in between.
async fn next_change(events: &mut Events) -> Value {
    loop {
        let event = events.next().await;
        if event["kind"] != "CONTACT" && event["kind"] != "CLUSTER_INFO" {
            return event;
        }
    }
}

fn names_of(page: &Value) -> Vec<String> {
    let all = page["class_runtimes"].as_array().unwrap();
    all.iter().map(|class| class["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn enforces_deadlines_and_sizes_and_returns_correlation_ids() {
    in_namespace(async |ns: &TestNamespace| {
        let crm = Crm::start(ns, &Options::default()).await;
        let origin = || crm.url.parse().unwrap();
        let mut client = DeploymentServiceClient::with_origin(plain(), origin());
        let mut paused = spec_of(&[hello("greet")]);
        paused["paused"] = json!(true);

        let mut late = tonic::Request::new(request("late", &paused));
        late.metadata_mut().insert("grpc-timeout", "1n".parse().unwrap());
        assert_eq!(client.deploy(late).await.unwrap_err().code(), Code::DeadlineExceeded);
        let mut invalid_timeout = tonic::Request::new(request("late", &paused));
        invalid_timeout.metadata_mut().insert("grpc-timeout", "soon".parse().unwrap());
        assert_eq!(client.deploy(invalid_timeout).await.unwrap_err().code(), Code::InvalidArgument);

        let mut large = paused.clone();
        large["functions"][0]["provision"]["env"][0]["value"] = json!("x".repeat(5 << 20));
        let status = client.deploy(request("large", &large)).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
        assert_eq!(status.get_error_details().error_info().unwrap().reason, "TOO_LARGE");

        let mut known = tonic::Request::new(request("known", &spec_of(&[hello("greet")])));
        known.metadata_mut().insert(CORRELATION, "call-4711".parse().unwrap());
        let response = client.deploy(known).await.unwrap();
        assert_eq!(response.metadata().get(CORRELATION).unwrap(), "call-4711");
        let response = response.into_inner();
        assert_eq!(response.correlation_id, "call-4711");
        assert_eq!(response.class_runtime.unwrap().correlation_id, "call-4711");
        let class = classes(ns).get("known").await.unwrap();
        assert_eq!(class.annotations()["oaas.io/correlation-id"], "call-4711");
        let events: Api<KubeEvent> = Api::namespaced(ns.client.clone(), &ns.name);
        wait_for_all(&events, "an Event with the id", RESPONSE_TIMEOUT, |all| {
            all.values().any(|event| {
                let about = event.regarding.as_ref().and_then(|it| it.name.as_deref());
                let note = event.note.as_deref().unwrap_or_default();
                let annotations = event.metadata.annotations.as_ref();
                let id = annotations.and_then(|all| all.get("oaas.io/deployment-id"));
                about == Some("known")
                    && note.ends_with("[call-4711]")
                    && id.is_some_and(|id| id == "known")
            })
        })
        .await;
        // Errors carry the id as well, and an invalid id is replaced.
        let missing = || GetDeploymentStatusRequest {
            deployment_id: "none".to_owned(),
            ..Default::default()
        };
        for (sent, kept) in [("call-4712", true), ("not \"fit\"", false)] {
            let mut message = tonic::Request::new(missing());
            message.metadata_mut().insert(CORRELATION, sent.parse().unwrap());
            let status = client.get_deployment_status(message).await.unwrap_err();
            assert_eq!(status.code(), Code::NotFound);
            let back = status.metadata().get(CORRELATION).unwrap();
            assert_eq!(back == sent, kept, "{back:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn deploy_needs_an_id_and_a_spec_but_no_unit() {
    in_namespace(async |ns: &TestNamespace| {
        let crm = Crm::start(ns, &Options::default()).await;
        let mut client = crm.client.clone();
        let mut paused = spec_of(&[hello("greet")]);
        paused["paused"] = json!(true);
        let mut without_spec = request("unit", &paused);
        without_spec.spec = None;
        let mut other_unit = paused.clone();
        other_unit["deployment_unit"] = json!({"id": "other"});
        for (wrong, field) in [
            (without_spec, "spec"),
            (request("", &paused), "deployment_id"),
            (request("unit", &other_unit), "spec.deployment_unit.id"),
        ] {
            let status = client.deploy(wrong).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
            let details = status.get_error_details();
            assert_eq!(details.bad_request().unwrap().field_violations[0].field, field);
        }
        assert!(classes(ns).get_opt("unit").await.unwrap().is_none());
        // The unit gets the deployment id.
        client.deploy(request("unit", &paused)).await.unwrap();
        let class = classes(ns).get("unit").await.unwrap();
        assert_eq!(class.spec.0.deployment_unit.unwrap().id, "unit");
    })
    .await;
}

#[tokio::test]
async fn log_lines_of_calls_and_reconciles_have_deployment_and_correlation_id() {
    in_namespace(async |ns: &TestNamespace| {
        let mut crm = CrmProcess::start(ns, &Options::default()).await;
        let mut paused = spec_of(&[hello("greet")]);
        paused["paused"] = json!(true);
        let mut accepted = tonic::Request::new(request("logged", &paused));
        accepted.metadata_mut().insert(CORRELATION, "call-4713".parse().unwrap());
        crm.client.deploy(accepted).await.unwrap();
        paused["selected_template"] = json!("unknown");
        let mut rejected = tonic::Request::new(request("rejected", &paused));
        rejected.metadata_mut().insert(CORRELATION, "call-4714".parse().unwrap());
        crm.client.deploy(rejected).await.unwrap_err();
        for (own_field, id, correlation) in
            [("namespace", "logged", "call-4713"), ("method", "rejected", "call-4714")]
        {
            eventually(
                &format!("a line with both ids and {own_field}"),
                RESPONSE_TIMEOUT,
                || async {
                    let log = crm.log();
                    let lines = log.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
                    let mut spans =
                        lines.flat_map(|it| it["spans"].as_array().cloned().unwrap_or_default());
                    let found = spans.any(|it| {
                        it[own_field].is_string()
                            && it["deployment_id"] == id
                            && it["correlation_id"] == correlation
                    });
                    if found { Ok(()) } else { Err(log) }
                },
            )
            .await;
        }
    })
    .await;
}

#[tokio::test]
async fn serves_grpc_web_and_rejects_unknown_paths() {
    in_namespace(async |ns: &TestNamespace| {
        let crm = Crm::start(ns, &Options::default()).await;
        // HTTP/1.1, as browsers use it without TLS, with an empty message frame.
        let old: legacy::Client<HttpConnector, Full<Bytes>> =
            legacy::Client::builder(TokioExecutor::new()).build_http();
        let web = |path: &str| {
            Request::post(format!("{}{path}", crm.url))
                .header("content-type", "application/grpc-web+proto")
                .header("x-grpc-web", "1")
                .body(Full::new(Bytes::from_static(&[0; 5])))
                .unwrap()
        };
        let response =
            old.request(web("/deployment.DeploymentService/GetClusterInfo")).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "application/grpc-web+proto");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let length = usize::try_from(u32::from_be_bytes(body[1..5].try_into().unwrap())).unwrap();
        assert_eq!(body[0], 0);
        let info = GetClusterInfoResponse::decode(&body[5..5 + length]).unwrap();
        assert!(info.templates.contains(&"k8s_deployment".to_owned()));
        let trailers = &body[5 + length..];
        assert_eq!(trailers[0], 0x80);
        let trailers = String::from_utf8_lossy(&trailers[5..]).to_lowercase();
        assert!(trailers.contains("grpc-status:0"), "{trailers}");

        let nowhere = format!("{}/nowhere", crm.url);
        let (status, headers, body) =
            send_request(&plain(), Method::GET, &nowhere, None, "").await.unwrap();
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert_eq!(headers["content-type"], "application/problem+json");
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["status"], 404);
        for path in ["/some.Service/Method", "/deployment.DeploymentService/Nothing"] {
            let mut grpc = tonic::client::Grpc::with_origin(plain(), crm.url.parse().unwrap());
            grpc.ready().await.unwrap();
            let codec = reflection_client::raw();
            let message = tonic::Request::new(reflection_client::empty());
            let status = grpc.unary(message, path.parse().unwrap(), codec).await.unwrap_err();
            assert_eq!(status.code(), Code::Unimplemented, "{path}: {status:?}");
            let web = old.request(web(path)).await.unwrap();
            assert_eq!(web.status(), StatusCode::OK, "{path}");
        }
        let unknown = serving_status(&plain(), &crm.url, "some.Service").await.unwrap_err();
        assert_eq!(unknown.code(), Code::NotFound);
        for service in ["", "deployment.DeploymentService"] {
            wait_serving(&plain(), &crm.url, service).await;
        }
    })
    .await;
}
