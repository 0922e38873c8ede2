//! From a Deploy call to an Available class that answers, and back to nothing.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use oprc_crm::crd::ClassRuntime;
use oprc_grpc::deployment::{GetDeploymentStatusRequest, GetOdgmStatusRequest};
use oprc_tests::{
    HELLO, Place,
    class::{available, classes, delete, deploy, everything, gone, hello, of, url, with_odgm},
    crm::{Crm, Options},
    eventually, in_namespace,
    objects::get_from_pod,
};
use serde_json::{Value, json};
use tonic::Code;

/// A pod can be asked for once its node's proxy has heard of the Service.
async fn answers(place: &Place, url: &str, who: &str) {
    let said = get_from_pod(place, &format!("{url}/?name={who}")).await;
    assert!(said.contains(&format!("Hello, {who}!")), "{url}: {said}");
}

async fn nothing_is_left(place: &Place) {
    eventually("everything to be gone", Duration::from_mins(1), || async {
        let left = everything(place).await;
        if left.is_empty() { Ok(()) } else { Err(format!("left: {left:?}")) }
    })
    .await;
}

#[tokio::test]
async fn two_functions_with_a_data_grid() {
    in_namespace(async |place: &Place| {
        let crm = Crm::start(place, &Options::default()).await;
        let spec = with_odgm(&[hello("greet"), hello("wave")]);
        let answer = deploy(&crm.client, "shop", &spec).await.unwrap();
        assert!(answer.accepted && answer.class_runtime.unwrap().deployment_id == "shop");
        let status = available(place, "shop").await;
        assert_eq!(status.ready.as_deref(), Some("3/3"));
        for key in ["greet", "wave"] {
            answers(place, &url(&status, key), key).await;
        }
        let of_shop =
            || GetOdgmStatusRequest { deployment_id: "shop".to_owned(), namespace: String::new() };
        let grid = crm.client.clone().get_odgm_status(of_shop()).await.unwrap().into_inner();
        assert_eq!(grid.collections.len(), 1);
        assert!(grid.collections[0].healthy && grid.collections[0].name == "orders");

        delete(&crm.client, "shop").await.unwrap();
        gone(place, "shop").await;
        nothing_is_left(place).await;
        let of_shop = GetDeploymentStatusRequest {
            deployment_id: "shop".to_owned(),
            namespace: String::new(),
        };
        let status = crm.client.clone().get_deployment_status(of_shop).await.unwrap_err();
        assert_eq!(status.code(), Code::NotFound);
    })
    .await;
}

/// The smallest class that there is: one function, no unit, collections by name only.
#[tokio::test]
async fn a_class_made_by_hand() {
    in_namespace(async |place: &Place| {
        let _crm = Crm::start(place, &Options::default()).await;
        let sample: ClassRuntime = serde_json::from_value(json!({
            "apiVersion": "oaas.io/v1alpha1",
            "kind": "ClassRuntime",
            "metadata": {"name": "hello-class"},
            "spec": {
                "selected_template": "dev",
                "addons": ["odgm"],
                "function": {"image": HELLO, "port": 8080},
                "odgm_config": {"collections": ["orders", "users"]},
            },
        }))
        .unwrap();
        let apply = PatchParams::apply("kubectl");
        classes(place).patch("hello-class", &apply, &Patch::Apply(&sample)).await.unwrap();
        let status = available(place, "hello-class").await;
        answers(place, &url(&status, "hello-class"), "sample").await;
        classes(place).delete("hello-class", &DeleteParams::default()).await.unwrap();
        gone(place, "hello-class").await;
        nothing_is_left(place).await;
    })
    .await;
}

async fn claims(place: &Place) -> Vec<String> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(place.client.clone(), &place.namespace);
    let all = api.list(&ListParams::default()).await.unwrap();
    all.iter().map(kube::ResourceExt::name_any).collect()
}

#[tokio::test]
async fn a_persistent_data_grid_keeps_its_claims_unless_they_are_to_go() {
    in_namespace(async |place: &Place| {
        let crm = Crm::start(place, &Options::default()).await;
        let persistent = |on_delete: &str| -> Value {
            let mut spec = with_odgm(&[hello("greet")]);
            spec["odgm_config"]["replicas"] = json!(2);
            spec["odgm_config"]["collections"][0]["persistence_mode"] = json!("persistent");
            spec["data_retention"] = json!({"on_delete": on_delete});
            spec
        };
        deploy(&crm.client, "kept", &persistent("retain")).await.unwrap();
        deploy(&crm.client, "lost", &persistent("delete")).await.unwrap();
        for name in ["kept", "lost"] {
            available(place, name).await;
        }
        assert_eq!(claims(place).await.len(), 4);

        let mut fewer = persistent("retain");
        fewer["odgm_config"]["collections"][0]["partition_count"] = json!(7);
        let refused = deploy(&crm.client, "kept", &fewer).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
        assert!(refused.message().contains("allow_data_loss"), "{refused:?}");

        for name in ["kept", "lost"] {
            delete(&crm.client, name).await.unwrap();
        }
        for name in ["kept", "lost"] {
            gone(place, name).await;
        }
        nothing_is_left(place).await;
        assert_eq!(claims(place).await, ["data-kept-odgm-0", "data-kept-odgm-1"]);
    })
    .await;
}

#[tokio::test]
async fn knative_goes_to_zero_and_comes_back() {
    in_namespace(async |place: &Place| {
        let crm = Crm::start(place, &Options::default()).await;
        let mut spec = of(&[hello("greet")]);
        spec["selected_template"] = json!("knative");
        deploy(&crm.client, "lazy", &spec).await.unwrap();
        let status = available(place, "lazy").await;
        assert_eq!(status.selection.as_ref().unwrap().template, "knative");
        let url = url(&status, "greet");
        answers(place, &url, "first").await;
        let pods: Api<Pod> = Api::namespaced(place.client.clone(), &place.namespace);
        eventually("no pod to be left", Duration::from_mins(2), || async {
            let running =
                pods.list(&ListParams::default().labels("oaas.io/owner=lazy")).await.unwrap();
            if running.items.is_empty() { Ok(()) } else { Err(running.items[0].name_any()) }
        })
        .await;
        assert_eq!(available(place, "lazy").await.phase, oprc_crm::crd::Phase::Available);
        answers(place, &url, "second").await;
        delete(&crm.client, "lazy").await.unwrap();
        gone(place, "lazy").await;
        nothing_is_left(place).await;
    })
    .await;
}

#[tokio::test]
async fn unified_chooses_for_each_function() {
    in_namespace(async |place: &Place| {
        let crm = Crm::start(place, &Options::default()).await;
        let mut bursty = hello("bursty");
        bursty["provision"]["min_scale"] = json!(0);
        bursty["provision"]["max_scale"] = json!(8);
        let mut steady = hello("steady");
        steady["provision"]["min_scale"] = json!(1);
        let mut spec = of(&[bursty, steady]);
        spec["selected_template"] = json!("unified");
        deploy(&crm.client, "both", &spec).await.unwrap();
        let status = available(place, "both").await;
        let runs_as = |key: &str| {
            let function = status.functions.iter().find(|it| it.key == key).unwrap();
            function.runs_as.clone().unwrap()
        };
        assert_eq!(
            (runs_as("bursty"), runs_as("steady")),
            ("knative".into(), "k8s_deployment".into())
        );
        for key in ["bursty", "steady"] {
            answers(place, &url(&status, key), key).await;
        }
        delete(&crm.client, "both").await.unwrap();
        gone(place, "both").await;
        nothing_is_left(place).await;
    })
    .await;
}

#[tokio::test]
async fn a_job_runs_once_for_each_generation() {
    in_namespace(async |place: &Place| {
        let crm = Crm::start(place, &Options::default()).await;
        deploy(&crm.client, "asked", &of(&[hello("greet")])).await.unwrap();
        let asked = url(&available(place, "asked").await, "greet");
        // The sample function's own client asks once, and ends.
        let mut run = hello("run");
        run["provision"]["args"] = json!(["get", asked]);
        run.as_object_mut().unwrap().remove("health_check");
        let mut spec = of(&[run]);
        spec["selected_template"] = json!("job");
        deploy(&crm.client, "once", &spec).await.unwrap();
        let status = available(place, "once").await;
        assert_eq!(status.functions[0].completed, Some(1));
        assert_eq!(status.functions[0].url, None);
        let jobs = everything(place).await;
        assert_eq!(jobs.iter().filter(|name| name.starts_with("Job/")).count(), 1, "{jobs:?}");

        spec["functions"][0]["provision"]["env"] = json!([{"name": "AGAIN", "value": "yes"}]);
        deploy(&crm.client, "once", &spec).await.unwrap();
        let status = available(place, "once").await;
        assert_eq!(status.functions[0].completed, Some(2));
        for name in ["once", "asked"] {
            delete(&crm.client, name).await.unwrap();
            gone(place, name).await;
        }
        nothing_is_left(place).await;
    })
    .await;
}
