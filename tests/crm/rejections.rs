//! Classes that fail: status and responses say why, and other classes aren't affected.

use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams},
    runtime::wait::await_condition,
};
use oprc_crm::crd::{AVAILABLE, ClassRuntimeStatus, DEGRADED, PROGRESSING, Phase};
use oprc_sandbox::within;
use oprc_tests::{
    TestNamespace,
    class::{
        AVAILABLE_TIMEOUT, classes, delete, deploy, hello, list_objects, spec_of, url,
        wait_available, wait_degraded, wait_deleted, wait_for_status, with_odgm,
    },
    crm::{Crm, Options},
    in_namespace,
    objects::{READY_TIMEOUT, get_from_pod},
};
use serde_json::{Value, json};
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::bystander::{
    create, raw_classes, reason_of, set_quota, with_bystander, with_bystander_and,
};

fn function(change: impl FnOnce(&mut Value)) -> Value {
    let mut function = hello("greet");
    change(&mut function);
    function
}

#[tokio::test]
async fn reports_images_that_cannot_be_pulled() {
    with_bystander(async |ns: &TestNamespace, crm: &Crm| {
        let absent = function(|it| it["image"] = json!("oprc.local/nobody-has-this:1"));
        let unreachable = function(|it| {
            it["image"] = json!("127.0.0.1:1/nobody/answers-here:1");
            it["provision"]["image_pull_policy"] = json!("IfNotPresent");
        });
        deploy(&crm.client, "absent", &spec_of(&[absent])).await.unwrap();
        deploy(&crm.client, "unreachable", &spec_of(&[unreachable])).await.unwrap();
        for name in ["absent", "unreachable"] {
            let status = wait_degraded(ns, name, "ImagePullFailed").await;
            assert!(status.message.unwrap().starts_with("greet: pod "));
            assert_eq!(status.functions[0].reason.as_deref(), Some("ImagePullFailed"));
            deploy(&crm.client, name, &spec_of(&[hello("greet")])).await.unwrap();
        }
        for name in ["absent", "unreachable"] {
            wait_available(ns, name).await;
        }
    })
    .await;
}

#[tokio::test]
async fn reports_crash_loops() {
    with_bystander(async |ns: &TestNamespace, crm: &Crm| {
        let nonsense = function(|it| it["provision"]["args"] = json!(["nonsense"]));
        deploy(&crm.client, "crashing", &spec_of(&[nonsense])).await.unwrap();
        let status = wait_degraded(ns, "crashing", "CrashLoop").await;
        assert!(status.message.unwrap().ends_with("with exit code 1"));
        deploy(&crm.client, "crashing", &spec_of(&[hello("greet")])).await.unwrap();
        wait_available(ns, "crashing").await;
    })
    .await;
}

/// Waits until a class waits for a quota.
async fn wait_for_quota(ns: &TestNamespace, name: &str) -> ClassRuntimeStatus {
    let what = format!("{name} to wait for a quota");
    let is = |status: &ClassRuntimeStatus| status.reason.as_deref() == Some("QuotaExceeded");
    let status = wait_for_status(ns, name, &what, AVAILABLE_TIMEOUT, is).await;
    assert_eq!(status.phase, Phase::Applying, "{name}");
    let progressing = status.conditions.iter().find(|it| it.type_ == PROGRESSING).unwrap();
    let (is_true, reason) = (progressing.status.as_str(), progressing.reason.as_str());
    assert_eq!((is_true, reason), ("True", "QuotaExceeded"), "{name}");
    assert!(!status.is_true(DEGRADED) && !status.is_true(AVAILABLE), "{name}");
    status
}

#[tokio::test]
async fn waits_for_quotas_and_recovers_when_they_are_deleted() {
    with_bystander(async |ns: &TestNamespace, crm: &Crm| {
        // The bystander has one of each.
        set_quota(ns, "few-pods", &json!({"pods": "1"})).await;
        deploy(&crm.client, "without-pods", &spec_of(&[hello("greet")])).await.unwrap();
        let status = wait_for_quota(ns, "without-pods").await;
        assert!(status.message.unwrap().contains("few-pods"));
        // A Job reports it only by an Event.
        let mut run = spec_of(&[hello("greet")]);
        run["selected_template"] = json!("job");
        deploy(&crm.client, "without-a-run", &run).await.unwrap();
        let status = wait_for_quota(ns, "without-a-run").await;
        assert!(status.message.unwrap().contains("few-pods"));
        delete(&crm.client, "without-a-run").await.unwrap();

        let mut overdue = spec_of(&[hello("greet")]);
        overdue["rollout"] = json!({"progress_deadline_seconds": 3});
        deploy(&crm.client, "overdue", &overdue).await.unwrap();
        let status = wait_degraded(ns, "overdue", "QuotaExceeded").await;
        assert!(status.message.unwrap().contains("few-pods"));

        set_quota(ns, "few-deployments", &json!({"count/deployments.apps": "3"})).await;
        deploy(&crm.client, "without-objects", &spec_of(&[hello("greet")])).await.unwrap();
        let message = wait_for_quota(ns, "without-objects").await.message.unwrap();
        assert!(
            message.starts_with("Deployment without-objects")
                && message.contains("few-deployments"),
            "{message}"
        );

        let api: Api<ResourceQuota> = Api::namespaced(ns.client.clone(), &ns.name);
        for name in ["few-pods", "few-deployments"] {
            api.delete(name, &DeleteParams::default()).await.unwrap();
        }
        for name in ["without-pods", "overdue", "without-objects"] {
            assert_eq!(wait_available(ns, name).await.observed_generation, Some(1));
        }
    })
    .await;
}

#[tokio::test]
async fn reports_a_missing_storage_class() {
    with_bystander(async |ns: &TestNamespace, crm: &Crm| {
        let mut spec = with_odgm(&[hello("greet")]);
        spec["odgm_config"]["collections"][0]["persistence_mode"] = json!("persistent");
        spec["odgm_config"]["storage"] = json!({"class": "nobody-has-this"});
        spec["data_retention"] = json!({"on_delete": "delete"});
        spec["rollout"] = json!({"progress_deadline_seconds": 3});
        deploy(&crm.client, "diskless", &spec).await.unwrap();
        let status = wait_degraded(ns, "diskless", "VolumeNotBound").await;
        assert!(status.message.unwrap().contains("storage class: nobody-has-this"));
        assert_eq!(status.odgm.unwrap().reason.as_deref(), Some("VolumeNotBound"));
        delete(&crm.client, "diskless").await.unwrap();
        wait_deleted(ns, "diskless").await;
    })
    .await;
}

#[tokio::test]
async fn rejects_unknown_and_unsuitable_templates() {
    in_namespace(async |ns: &TestNamespace| {
        let floor = "OPRC_CRM_TEMPLATES_FLOORS_K8S_DEPLOYMENT_MS";
        let options = Options::default().with(floor, "5");
        with_bystander_and(ns, &options, async |crm: &Crm| {
            let before = list_objects(ns).await;
            let mut too_fast = spec_of(&[hello("greet")]);
            too_fast["constraints"] = json!({"hard_latency_ms": 1});
            let mut unheard_of = spec_of(&[hello("greet")]);
            unheard_of["selected_template"] = json!("unheard-of");
            let mut too_slow = spec_of(&[hello("greet")]);
            too_slow["selected_template"] = json!("k8s_deployment");
            too_slow["constraints"] = json!({"hard_latency_ms": 1});
            for (name, spec, in_answer, in_status, says) in [
                ("too-fast", &too_fast, "NO_SUITABLE_TEMPLATE", "NoSuitableTemplate", "5 ms"),
                (
                    "unheard-of",
                    &unheard_of,
                    "UNKNOWN_TEMPLATE",
                    "UnknownTemplate",
                    "k8s_deployment",
                ),
                ("too-slow", &too_slow, "TEMPLATE_REJECTED", "TemplateRejected", "5 ms"),
            ] {
                let refused = deploy(&crm.client, name, spec).await.unwrap_err();
                assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
                assert_eq!(reason_of(&refused), in_answer);
                let details = refused.get_error_details();
                let violations = &details.precondition_failure().unwrap().violations;
                assert_eq!(violations[0].r#type, in_status);
                assert!(refused.message().contains(says), "{refused:?}");
                assert!(classes(ns).get_opt(name).await.unwrap().is_none());

                create(ns, name, spec).await;
                let status = wait_degraded(ns, name, in_status).await;
                assert!(status.message.unwrap().contains(says));
                assert!(
                    !status
                        .conditions
                        .iter()
                        .any(|it| it.type_ == "Available" && it.status == "True")
                );
            }
            assert_eq!(list_objects(ns).await, before);
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn rolls_back_an_update_that_never_becomes_ready() {
    with_bystander(async |ns: &TestNamespace, crm: &Crm| {
        let spec = |path: &str, deadline: i32, round: &str| {
            let function = function(|it| {
                it["health_check"]["path"] = json!(path);
                it["provision"]["env"] = json!([
                    {"name": "DRAIN_MS", "value": "0"}, {"name": "ROUND", "value": round},
                ]);
            });
            let mut spec = spec_of(&[function]);
            spec["rollout"] = json!({"progress_deadline_seconds": deadline, "rollback": true});
            spec
        };
        let pods: Api<Pod> = Api::namespaced(ns.client.clone(), &ns.name);
        let own = ListParams::default().labels("oaas.io/owner=shop");
        deploy(&crm.client, "shop", &spec("/healthz", 600, "first")).await.unwrap();
        let first = wait_available(ns, "shop").await;
        let before = pods.list(&own).await.unwrap().items;
        assert_eq!(before.len(), 1);

        deploy(&crm.client, "shop", &spec("/?fail=500", 5, "second")).await.unwrap();
        let taken_back = |status: &ClassRuntimeStatus| {
            status.reason.as_deref() == Some("RolledBack") && status.is_true("Available")
        };
        let status =
            wait_for_status(ns, "shop", "shop to be rolled back", AVAILABLE_TIMEOUT, taken_back)
                .await;
        assert_eq!((status.phase, status.rolled_back), (Phase::Degraded, Some(2)));
        assert_eq!(status.last_available.as_ref().unwrap().generation, 1);
        assert!(status.is_true("Degraded"));
        assert_eq!(classes(ns).get("shop").await.unwrap().metadata.generation, Some(2));
        // The same pod responds at the same URL.
        let pod = pods.get(&before[0].name_any()).await.unwrap();
        assert_eq!((pod.uid(), &pod.metadata.deletion_timestamp), (before[0].uid(), &None));
        assert_eq!(url(&status, "greet"), url(&first, "greet"));
        let said = get_from_pod(ns, &format!("{}/?name=again", url(&status, "greet"))).await;
        assert!(said.contains("Hello, again!") && said.contains(&before[0].name_any()), "{said}");

        deploy(&crm.client, "shop", &spec("/healthz", 600, "third")).await.unwrap();
        let status = wait_available(ns, "shop").await;
        assert_eq!((status.rolled_back, status.last_available.unwrap().generation), (None, 3));
        assert!(!status.conditions.iter().any(|it| it.type_ == "Degraded" && it.status == "True"));
    })
    .await;
}

/// CRM names what the CRD can't validate.
#[tokio::test]
async fn reports_a_spec_that_the_crd_accepts_but_crm_cannot_decode() {
    with_bystander(async |ns: &TestNamespace, crm: &Crm| {
        let mut spec = with_odgm(&[hello("greet")]);
        spec["odgm_config"]["collections"] = json!([42]);
        create(ns, "unreadable", &spec).await;
        let refused = |class: Option<&DynamicObject>| {
            let status = class.and_then(|class| class.data.get("status"));
            status.is_some_and(|status| status["phase"] == "Degraded")
        };
        let waiting = await_condition(raw_classes(ns), "unreadable", refused);
        let class =
            within("unreadable to be Degraded", READY_TIMEOUT, waiting).await.unwrap().unwrap();
        let status = &class.data["status"];
        assert_eq!(status["reason"], "InvalidSpec");
        let message = status["message"].as_str().unwrap();
        assert!(message.contains("odgm_config.collections[0]"), "{message}");
        delete(&crm.client, "unreadable").await.unwrap();
        let absent = |class: Option<&DynamicObject>| class.is_none();
        let waiting = await_condition(raw_classes(ns), "unreadable", absent);
        within("unreadable to be deleted", READY_TIMEOUT, waiting).await.unwrap();
    })
    .await;
}

/// Errors travel in headers, which have a size limit: a client that receives more closes the
/// connection with all of its calls.
#[tokio::test]
async fn rejections_of_long_values_fit_into_headers() {
    with_bystander(async |_: &TestNamespace, crm: &Crm| {
        for word in ["a".repeat(60_000), "é".repeat(10_000)] {
            for (field, value) in [("selected_template", json!(word)), ("addons", json!([word]))] {
                let mut wrong = spec_of(&[hello("greet")]);
                wrong[field] = value;
                let refused = deploy(&crm.client, "wrong", &wrong).await.unwrap_err();
                assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
                assert_eq!(reason_of(&refused), "INVALID_SPEC");
            }
        }
        // The maximum length in the schema.
        let mut unknown = spec_of(&[hello("greet")]);
        unknown["selected_template"] = json!("a".repeat(63));
        let refused = deploy(&crm.client, "wrong", &unknown).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
        assert_eq!(reason_of(&refused), "UNKNOWN_TEMPLATE");
    })
    .await;
}
