//! Classes from the Deploy call to deletion.

use std::{collections::BTreeSet, fs, time::Duration};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{PersistentVolumeClaim, Pod},
    events::v1::Event as KubeEvent,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams},
    runtime::wait::await_condition,
};
use oprc_crm::{
    crd::{ClassRuntimeStatus, Phase},
    kinds::{DEPLOYMENT, JOB, KNATIVE_SERVICE},
};
use oprc_grpc::deployment::GetDeploymentStatusRequest;
use oprc_sandbox::within;
use oprc_tests::{
    HELLO, TestNamespace,
    class::{
        AVAILABLE_TIMEOUT, calls_once, classes, delete, deploy, hello, list, spec_of, url,
        wait_available, wait_deleted, wait_for_all, wait_for_status, with_odgm,
    },
    crm::{Crm, Options, apply},
    eventually, in_namespace,
    inventory::{inventory, wait_for_only},
    objects::get_from_pod,
};
use oprc_unit::names;
use serde_json::{Value, json};
use tonic::Code;

use crate::{
    data_grid::assert_after_grid,
    server::{RESPONSE_TIMEOUT, plain, reflection_client::Reflected},
};

/// Bound on scaling to zero.
const SCALE_TO_ZERO_TIMEOUT: Duration = Duration::from_mins(5);
/// A minimal class.
const SAMPLE: &str = r#"
apiVersion: oaas.io/v1alpha1
kind: ClassRuntime
metadata:
  name: hello-class
spec:
  selected_template: dev
  addons: ["odgm"]
  function:
    image: @IMAGE@
    port: 8080
  odgm_config:
    collections: ["orders", "users"]
"#;

/// Asserts that a function responds to a pod.
async fn assert_greets(ns: &TestNamespace, url: &str, name: &str) {
    let response = get_from_pod(ns, &format!("{url}/?name={name}")).await;
    assert!(response.contains(&format!("Hello, {name}!")), "{url}: {response}");
}

/// A CRM, and the objects that existed before.
async fn begin(ns: &TestNamespace) -> (Crm, BTreeSet<String>) {
    let crm = Crm::start(ns, &Options::default()).await;
    (crm, inventory(ns).await)
}

/// Waits until a class has Events with these reasons.
async fn events(ns: &TestNamespace, class: &str, reasons: &[&str]) {
    let api: Api<KubeEvent> = Api::namespaced(ns.client.clone(), &ns.name);
    wait_for_all(&api, &format!("Events of {class}"), RESPONSE_TIMEOUT, |all| {
        let about = |event: &KubeEvent| {
            let regarding = event.regarding.as_ref();
            regarding.is_some_and(|it| {
                it.kind.as_deref() == Some("ClassRuntime") && it.name.as_deref() == Some(class)
            })
        };
        let own = || all.values().filter(|event| about(event));
        let is_recorded =
            |reason: &&str| own().any(|event| event.reason.as_deref() == Some(*reason));
        reasons.iter().all(is_recorded)
    })
    .await;
}

#[tokio::test]
async fn deploys_two_functions_with_a_data_grid_and_deletes_everything() {
    in_namespace(async |ns: &TestNamespace| {
        let (crm, before) = begin(ns).await;
        let spec = with_odgm(&[hello("greet"), hello("wave")]);
        let response = deploy(&crm.client, "shop", &spec).await.unwrap();
        assert!(response.accepted && response.class_runtime.unwrap().deployment_id == "shop");
        let status = wait_available(ns, "shop").await;
        assert_eq!(status.ready.as_deref(), Some("3/3"));
        let child = |key| (DEPLOYMENT, names::function("shop", Some(key)));
        assert_after_grid(ns, "shop", &[child("greet"), child("wave")]).await;
        for key in ["greet", "wave"] {
            assert_greets(ns, &url(&status, key), key).await;
        }
        events(ns, "shop", &["TemplateSelected", "Applied", "Available"]).await;
        // The status of the data grid, by reflection.
        let api = Reflected::at(plain(), &crm.url).await;
        let grid = eventually("the status of the data grid", RESPONSE_TIMEOUT, || async {
            let response = api.call("GetOdgmStatus", json!({"deployment_id": "shop"})).await;
            response.map_err(|status| format!("{status:?}"))
        })
        .await;
        let collections = grid["collections"].as_array().unwrap();
        assert_eq!(collections.len(), 1, "{grid}");
        assert!(collections[0]["healthy"] == true && collections[0]["name"] == "orders", "{grid}");

        delete(&crm.client, "shop").await.unwrap();
        wait_deleted(ns, "shop").await;
        wait_for_only(ns, &before, &[]).await;
        let of_shop =
            GetDeploymentStatusRequest { deployment_id: "shop".to_owned(), ..Default::default() };
        let status = crm.client.clone().get_deployment_status(of_shop).await.unwrap_err();
        assert_eq!(status.code(), Code::NotFound);
    })
    .await;
}

/// One function, no unit, and collections by name only.
#[tokio::test]
async fn reconciles_a_class_created_with_kubectl() {
    in_namespace(async |ns: &TestNamespace| {
        let (_crm, before) = begin(ns).await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sample.yaml");
        fs::write(&file, SAMPLE.replace("@IMAGE@", HELLO)).unwrap();
        let file = file.to_str().unwrap();
        apply(&ns.cluster, &["apply", "-n", &ns.name, "-f", file]);
        let status = wait_available(ns, "hello-class").await;
        assert_greets(ns, &url(&status, "hello-class"), "sample").await;
        classes(ns).delete("hello-class", &DeleteParams::default()).await.unwrap();
        wait_deleted(ns, "hello-class").await;
        wait_for_only(ns, &before, &[]).await;
    })
    .await;
}

#[tokio::test]
async fn retains_or_deletes_claims_of_a_persistent_data_grid() {
    in_namespace(async |ns: &TestNamespace| {
        let (crm, before) = begin(ns).await;
        let persistent = |on_delete: &str| -> Value {
            let mut spec = with_odgm(&[hello("greet"), hello("wave")]);
            // Two copies under consensus become three.
            spec["odgm_config"]["replicas"] = json!(2);
            spec["odgm_config"]["collections"][0]["persistence_mode"] = json!("persistent");
            spec["data_retention"] = json!({"on_delete": on_delete});
            spec
        };
        deploy(&crm.client, "kept", &persistent("retain")).await.unwrap();
        deploy(&crm.client, "lost", &persistent("delete")).await.unwrap();
        for name in ["kept", "lost"] {
            let status = wait_available(ns, name).await;
            let child = |key| (DEPLOYMENT, names::function(name, Some(key)));
            assert_after_grid(ns, name, &[child("greet"), child("wave")]).await;
            for key in ["greet", "wave"] {
                assert_greets(ns, &url(&status, key), name).await;
            }
        }
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(ns.client.clone(), &ns.name);
        assert_eq!(claims.list(&ListParams::default()).await.unwrap().items.len(), 6);

        let mut fewer = persistent("retain");
        fewer["odgm_config"]["collections"][0]["partition_count"] = json!(7);
        let rejected = deploy(&crm.client, "kept", &fewer).await.unwrap_err();
        assert_eq!(rejected.code(), Code::FailedPrecondition, "{rejected:?}");
        assert!(rejected.message().contains("allow_data_loss"), "{rejected:?}");

        for name in ["kept", "lost"] {
            delete(&crm.client, name).await.unwrap();
        }
        for name in ["kept", "lost"] {
            wait_deleted(ns, name).await;
        }
        let kept = [0, 1, 2].map(|node| format!("PersistentVolumeClaim/data-kept-odgm-{node}"));
        let kept: Vec<&str> = kept.iter().map(String::as_str).collect();
        wait_for_only(ns, &before, &kept).await;
    })
    .await;
}

#[tokio::test]
async fn knative_functions_scale_to_zero_and_back() {
    in_namespace(async |ns: &TestNamespace| {
        let (crm, before) = begin(ns).await;
        let mut spec = with_odgm(&[hello("greet"), hello("wave")]);
        spec["selected_template"] = json!("knative");
        for function in spec["functions"].as_array_mut().unwrap() {
            // Knative's grace period is the timeout of a call.
            function["config"] = json!({"timeout_ms": 20000});
        }
        deploy(&crm.client, "lazy", &spec).await.unwrap();
        let status = wait_available(ns, "lazy").await;
        assert_eq!(status.selection.as_ref().unwrap().template, "knative");
        let child = |key| (KNATIVE_SERVICE, names::knative("lazy", Some(key)));
        assert_after_grid(ns, "lazy", &[child("greet"), child("wave")]).await;
        let urls = ["greet", "wave"].map(|key| url(&status, key));
        for url in &urls {
            assert_greets(ns, url, "first").await;
        }
        let deployments: Api<Deployment> = Api::namespaced(ns.client.clone(), &ns.name);
        let scaled_to_zero = |deployment: Option<&Deployment>| {
            let status = deployment.and_then(|deployment| deployment.status.as_ref());
            status.is_some_and(|status| status.replicas.unwrap_or_default() == 0)
        };
        // The data grid also has a Deployment, which doesn't scale to zero.
        let mut workloads = list(ns, &DEPLOYMENT).await;
        workloads.retain(|it| it.labels().contains_key("serving.knative.dev/service"));
        assert_eq!(workloads.len(), 2);
        for workload in workloads {
            let name = workload.name_any();
            let scaled_to_zero = await_condition(deployments.clone(), &name, scaled_to_zero);
            within("zero replicas", SCALE_TO_ZERO_TIMEOUT, scaled_to_zero).await.unwrap();
        }
        let scaled_to_zero = |status: &ClassRuntimeStatus| {
            status.phase == Phase::Available && status.ready.as_deref() == Some("3/3")
        };
        wait_for_status(
            ns,
            "lazy",
            "Available with zero replicas",
            AVAILABLE_TIMEOUT,
            scaled_to_zero,
        )
        .await;
        for url in &urls {
            assert_greets(ns, url, "second").await;
        }
        delete(&crm.client, "lazy").await.unwrap();
        wait_deleted(ns, "lazy").await;
        wait_for_only(ns, &before, &[]).await;
    })
    .await;
}

#[tokio::test]
async fn unified_selects_a_shape_per_function() {
    in_namespace(async |ns: &TestNamespace| {
        let (crm, before) = begin(ns).await;
        let mut bursty = hello("bursty");
        bursty["provision"]["min_scale"] = json!(0);
        bursty["provision"]["max_scale"] = json!(8);
        let mut steady = hello("steady");
        steady["provision"]["min_scale"] = json!(1);
        bursty["config"] = json!({"timeout_ms": 20000});
        let mut spec = with_odgm(&[bursty, steady]);
        spec["selected_template"] = json!("unified");
        deploy(&crm.client, "both", &spec).await.unwrap();
        let status = wait_available(ns, "both").await;
        let runs_as = |key: &str| {
            let function = status.functions.iter().find(|it| it.key == key).unwrap();
            function.runs_as.clone().unwrap()
        };
        assert_eq!(
            (runs_as("bursty"), runs_as("steady")),
            ("knative".into(), "k8s_deployment".into())
        );
        let children = [
            (KNATIVE_SERVICE, names::knative("both", Some("bursty"))),
            (DEPLOYMENT, names::function("both", Some("steady"))),
        ];
        assert_after_grid(ns, "both", &children).await;
        for key in ["bursty", "steady"] {
            assert_greets(ns, &url(&status, key), key).await;
        }
        delete(&crm.client, "both").await.unwrap();
        wait_deleted(ns, "both").await;
        wait_for_only(ns, &before, &[]).await;
    })
    .await;
}

/// Jobs with their numbers of succeeded and failed pods.
async fn jobs(ns: &TestNamespace) -> Vec<(String, Value, Value)> {
    let of_job = |job: &kube::api::DynamicObject| {
        let count = |what: &str| job.data["status"][what].clone();
        (job.name_any(), count("succeeded"), count("failed"))
    };
    list(ns, &JOB).await.iter().map(of_job).collect()
}

#[tokio::test]
async fn a_job_runs_once_per_generation() {
    in_namespace(async |ns: &TestNamespace| {
        let (crm, before) = begin(ns).await;
        deploy(&crm.client, "asked", &spec_of(&[hello("greet")])).await.unwrap();
        let target = url(&wait_available(ns, "asked").await, "greet");
        let mut spec = with_odgm(&[calls_once("run", &target), calls_once("also", &target)]);
        spec["selected_template"] = json!("job");
        deploy(&crm.client, "once", &spec).await.unwrap();
        let ran = |status: &ClassRuntimeStatus, times: i64| {
            assert_eq!(status.functions.len(), 2);
            for function in &status.functions {
                assert_eq!((function.completed, &function.url), (Some(times), &None));
            }
        };
        ran(&wait_available(ns, "once").await, 1);
        let child = |key| (JOB, names::job("once", Some(key), 1));
        assert_after_grid(ns, "once", &[child("run"), child("also")]).await;
        let first = jobs(ns).await;
        assert_eq!(first.len(), 2, "{first:?}");

        spec["functions"][0]["provision"]["env"] = json!([{"name": "AGAIN", "value": "yes"}]);
        deploy(&crm.client, "once", &spec).await.unwrap();
        ran(&wait_available(ns, "once").await, 2);
        // Each runs once more, and former Jobs aren't repeated.
        eventually("only the second runs to be there", RESPONSE_TIMEOUT, || async {
            let second = jobs(ns).await;
            let only = second.len() == 2 && second.iter().all(|job| !first.contains(job));
            if only { Ok(()) } else { Err(format!("{second:?} after {first:?}")) }
        })
        .await;
        for name in ["once", "asked"] {
            delete(&crm.client, name).await.unwrap();
            wait_deleted(ns, name).await;
        }
        wait_for_only(ns, &before, &[]).await;
    })
    .await;
}

#[tokio::test]
async fn configured_sizes_reach_containers_that_specify_none() {
    in_namespace(async |ns: &TestNamespace| {
        let mut options = Options::default();
        for (component, amounts) in
            [("FUNCTION", ["15m", "24Mi", "210m", "96Mi"]), ("ODGM", ["16m", "25Mi", "220m", "97Mi"])]
        {
            let names = ["REQUESTS_CPU", "REQUESTS_MEMORY", "LIMITS_CPU", "LIMITS_MEMORY"];
            for (name, amount) in names.into_iter().zip(amounts) {
                options = options.with(&format!("OPRC_CRM_{component}_{name}"), amount);
            }
        }
        let crm = Crm::start(ns, &options).await;
        let mut spec = with_odgm(&[hello("greet")]);
        for part in ["/functions/0/provision", "/odgm_config"] {
            spec.pointer_mut(part).unwrap().as_object_mut().unwrap().remove("requests");
        }
        deploy(&crm.client, "sized", &spec).await.unwrap();
        wait_available(ns, "sized").await;
        let pods: Api<Pod> = Api::namespaced(ns.client.clone(), &ns.name);
        for (component, expected) in [
            ("function", json!({"requests": {"cpu": "15m", "memory": "24Mi"}, "limits": {"cpu": "210m", "memory": "96Mi"}})),
            ("odgm", json!({"requests": {"cpu": "16m", "memory": "25Mi"}, "limits": {"cpu": "220m", "memory": "97Mi"}})),
        ] {
            let own = format!("oaas.io/owner=sized,oaas.io/component={component}");
            let pods = pods.list(&ListParams::default().labels(&own)).await.unwrap().items;
            assert_eq!(pods.len(), 1, "{component}");
            let resources = &pods[0].spec.as_ref().unwrap().containers[0].resources;
            assert_eq!(serde_json::to_value(resources).unwrap(), expected, "{component}");
        }
    })
    .await;
}
