//! CRM restores fields that it owns, and leaves those of others.

use std::collections::BTreeMap;

use k8s_openapi::api::{apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use oprc_crm::{
    crd::{ClassRuntimeStatus, Phase},
    kinds::{AUTOSCALER, DEPLOYMENT, JOB, Kind, SERVICE},
    reconcile::report::FOREIGN_AUTOSCALER,
};
use oprc_sandbox::within;
use oprc_tests::{
    TestNamespace,
    class::{
        self, AVAILABLE_TIMEOUT, deploy, hello, list, objects, spec_of, wait_available,
        wait_degraded, wait_for_status,
    },
    crm::{Crm, Options},
    fixture::{follow, with_crm},
    objects::hello_template,
};
use oprc_unit::names;
use serde_json::{Value, json};

/// The field manager of another client.
pub(crate) const OTHER_MANAGER: &str = "somebody";

pub(crate) fn as_other_manager() -> PostParams {
    PostParams { field_manager: Some(OTHER_MANAGER.to_owned()), ..PostParams::default() }
}

pub(crate) fn version(object: &DynamicObject) -> String {
    object.metadata.resource_version.clone().unwrap()
}

/// Waits until CRM has reconciled an object after all earlier changes: it restores a label.
async fn wait_for_reconcile(ns: &TestNamespace, kind: &Kind, name: &str) {
    let api = objects(ns, kind);
    let changed = json!({"metadata": {"labels": {"oaas.io/component": "spoiled"}}});
    let params =
        PatchParams { field_manager: Some(OTHER_MANAGER.to_owned()), ..PatchParams::default() };
    let changed = api.patch(name, &params, &Patch::Merge(&changed)).await.unwrap();
    let restored = |object: Option<&DynamicObject>| {
        object.is_some_and(|object| object.labels()["oaas.io/component"] == "function")
    };
    follow(&api, name, &version(&changed), "the label to be restored", restored).await.unwrap();
}

/// The value of a variable in the pods of a Deployment.
fn variable<'a>(deployment: &'a DynamicObject, name: &str) -> Option<&'a str> {
    class::variable(deployment.data.pointer("/spec/template/spec").unwrap(), name)
}

/// Whether CRM has ever written to an object.
fn is_touched(object: &DynamicObject) -> bool {
    let by = |name: Option<&str>| name.is_some_and(|name| name.contains("oprc"));
    object.managed_fields().iter().any(|entry| by(entry.manager.as_deref()))
}

/// The part of an object that its creator set, without its controller's annotations.
fn initial_part(object: &DynamicObject) -> Value {
    let meta = &object.metadata;
    let is_own = |(name, _): &(&String, &String)| !name.starts_with("deployment.kubernetes.io/");
    let annotations: BTreeMap<_, _> = object.annotations().iter().filter(is_own).collect();
    json!([meta.uid, meta.labels, annotations, meta.owner_references, object.data["spec"]])
}

#[tokio::test]
async fn keeps_fields_of_others_and_removes_own_obsolete_fields() {
    with_crm(&Options::default(), async |ns: &TestNamespace, crm: &Crm| {
        let mut spec = spec_of(&[hello("greet")]);
        let own = hello("greet")["provision"]["env"][0].clone();
        let passing = json!({"name": "PASSING", "value": "yes"});
        spec["functions"][0]["provision"]["env"] = json!([own, passing]);
        deploy(&crm.client, "shared", &spec).await.unwrap();
        wait_available(ns, "shared").await;
        let name = names::function("shared", Some("greet"));

        let meta = json!({"labels": {"team": "a"}, "annotations": {"example.com/note": "kept"}});
        let foreign = [
            (SERVICE, json!({"metadata": meta})),
            (
                DEPLOYMENT,
                json!({
                    "metadata": meta,
                    "spec": {"template": {"spec": {"containers": [
                        {"name": "function", "env": [{"name": "THEIRS", "value": "yes"}]},
                    ]}}},
                }),
            ),
        ];
        for (kind, mut object) in foreign {
            object["apiVersion"] = json!(kind.api_version());
            object["kind"] = json!(kind.kind);
            let apply = PatchParams::apply(OTHER_MANAGER);
            objects(ns, &kind).patch(&name, &apply, &Patch::Apply(&object)).await.unwrap();
        }
        let assert_kept = async |when: &str| {
            for kind in [SERVICE, DEPLOYMENT] {
                let object = objects(ns, &kind).get(&name).await.unwrap();
                assert_eq!(object.labels()["team"], "a", "{when}");
                assert_eq!(object.annotations()["example.com/note"], "kept", "{when}");
                if kind == DEPLOYMENT {
                    assert_eq!(variable(&object, "THEIRS"), Some("yes"), "{when}");
                }
            }
        };
        for kind in [SERVICE, DEPLOYMENT] {
            wait_for_reconcile(ns, &kind, &name).await;
        }
        assert_kept("after a reconcile").await;
        let deployment = objects(ns, &DEPLOYMENT).get(&name).await.unwrap();
        assert_eq!(variable(&deployment, "PASSING"), Some("yes"));

        spec["functions"][0]["provision"]["env"] = json!([own]);
        deploy(&crm.client, "shared", &spec).await.unwrap();
        wait_available(ns, "shared").await;
        assert_kept("after an update").await;
        let deployment = objects(ns, &DEPLOYMENT).get(&name).await.unwrap();
        assert_eq!(variable(&deployment, "PASSING"), None);
        assert_eq!(variable(&deployment, "DRAIN_MS"), Some("0"));
    })
    .await;
}

/// Changes an object, and waits until CRM has restored it.
async fn assert_restored(
    ns: &TestNamespace,
    kind: &Kind,
    name: &str,
    change: impl Fn(&mut DynamicObject),
    is_restored: impl Fn(&DynamicObject) -> bool,
) {
    let api = objects(ns, kind);
    let changed = loop {
        let mut object = api.get(name).await.unwrap();
        change(&mut object);
        match api.replace(name, &as_other_manager(), &object).await {
            // Its controller has changed it in between.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            changed => break changed.unwrap(),
        }
    };
    assert!(!is_restored(&changed), "{kind} {name} wasn't changed");
    let what = format!("{kind} {name} to be restored");
    follow(&api, name, &version(&changed), &what, |it| it.is_some_and(&is_restored)).await.unwrap();
}

#[tokio::test]
async fn restores_the_controller_reference() {
    with_crm(&Options::default(), async |ns: &TestNamespace, crm: &Crm| {
        deploy(&crm.client, "led", &spec_of(&[hello("greet")])).await.unwrap();
        wait_available(ns, "led").await;
        let name = names::function("led", Some("greet"));
        for kind in [SERVICE, DEPLOYMENT] {
            let free = |object: &mut DynamicObject| {
                object.owner_references_mut()[0].controller = Some(false);
            };
            let controlled = |object: &DynamicObject| {
                object.owner_references().iter().any(|it| it.controller == Some(true))
            };
            assert_restored(ns, &kind, &name, free, controlled).await;
        }
        wait_available(ns, "led").await;
    })
    .await;
}

#[tokio::test]
async fn restores_and_recreates_a_running_job() {
    with_crm(&Options::default(), async |ns: &TestNamespace, crm: &Crm| {
        // It serves requests, so it never completes.
        let mut spec = spec_of(&[hello("greet")]);
        spec["selected_template"] = json!("job");
        spec["functions"][0]["config"] = json!({"timeout_ms": 600_000});
        deploy(&crm.client, "run", &spec).await.unwrap();
        let name = names::job("run", Some("greet"), 1);
        let api = objects(ns, &JOB);
        let active = |job: Option<&DynamicObject>| {
            job.is_some_and(|job| job.data.pointer("/status/active") == Some(&json!(1)))
        };
        let what = "the Job to be active";
        let before = class::wait_for(&api, &name, what, AVAILABLE_TIMEOUT, active).await.unwrap();
        let change = |job: &mut DynamicObject| {
            job.labels_mut().insert("oaas.io/component".to_owned(), "spoiled".to_owned());
            job.data["spec"]["activeDeadlineSeconds"] = json!(9);
        };
        let is_restored = |job: &DynamicObject| {
            job.labels()["oaas.io/component"] == "function"
                && job.data["spec"]["activeDeadlineSeconds"] == 600
        };
        assert_restored(ns, &JOB, &name, change, is_restored).await;
        let restored = api.get(&name).await.unwrap();
        assert_eq!(restored.metadata.uid, before.unwrap().metadata.uid);

        api.delete(&name, &DeleteParams::background()).await.unwrap();
        let recreated = |job: Option<&DynamicObject>| {
            job.is_some_and(|job| job.metadata.uid != restored.metadata.uid)
        };
        let what = "the Job to be recreated";
        follow(&api, &name, &version(&restored), what, recreated).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn never_changes_objects_of_other_owners() {
    with_crm(&Options::default(), async |ns: &TestNamespace, crm: &Crm| {
        let labels = json!({"app": "theirs"});
        let service = json!({"selector": labels, "ports": [{"port": 80}]});
        let mut template = hello_template("theirs");
        template["metadata"]["labels"] = labels.clone();
        let deployment =
            json!({"replicas": 0, "selector": {"matchLabels": labels}, "template": template});
        // The kind with the taken name, and another kind of the class.
        for (kind, spec, other, id) in [
            (SERVICE, service, DEPLOYMENT, "taken-address"),
            (DEPLOYMENT, deployment, SERVICE, "taken-workload"),
        ] {
            let name = names::function(id, Some("greet"));
            let mut foreign = DynamicObject::new(&name, &kind.resource());
            foreign.metadata.labels = serde_json::from_value(labels.clone()).unwrap();
            foreign.data = json!({"spec": spec});
            let api = objects(ns, &kind);
            let foreign = api.create(&as_other_manager(), &foreign).await.unwrap();
            deploy(&crm.client, id, &spec_of(&[hello("greet")])).await.unwrap();
            let status = wait_degraded(ns, id, "NameConflict").await;
            let message = status.message.unwrap();
            assert!(message.contains(&format!("{kind} {name}")), "{message}");
            // CRM creates and reconciles the other objects.
            wait_for_reconcile(ns, &other, &name).await;
            let status = wait_degraded(ns, id, "NameConflict").await;
            assert!(!status.resource_refs.iter().any(|it| it.kind == kind.kind));
            let now = api.get(&name).await.unwrap();
            assert_eq!(initial_part(&now), initial_part(&foreign));
            assert!(!is_touched(&now), "{:?}", now.managed_fields());

            api.delete(&name, &DeleteParams::background()).await.unwrap();
            wait_available(ns, id).await;
            let own = api.get(&name).await.unwrap();
            assert_ne!(own.metadata.uid, foreign.metadata.uid);
            assert_eq!(own.owner_references()[0].name, id);
        }
    })
    .await;
}

fn has_foreign_autoscaler(status: &ClassRuntimeStatus) -> bool {
    status.phase == Phase::Available && status.is_true(FOREIGN_AUTOSCALER)
}

async fn autoscalers(ns: &TestNamespace) -> Vec<String> {
    list(ns, &AUTOSCALER).await.iter().map(kube::ResourceExt::name_any).collect()
}

#[tokio::test]
async fn leaves_replicas_to_an_autoscaler_of_another_owner() {
    let options = Options::default().with("OPRC_CRM_FEATURES_HPA", "true");
    with_crm(&options, async |ns: &TestNamespace, crm: &Crm| {
        let mut spec = spec_of(&[hello("greet")]);
        spec["functions"][0]["provision"]["min_scale"] = json!(2);
        spec["functions"][0]["provision"]["max_scale"] = json!(3);
        deploy(&crm.client, "scaled", &spec).await.unwrap();
        wait_available(ns, "scaled").await;
        let name = names::function("scaled", Some("greet"));
        assert_eq!(autoscalers(ns).await, [name.as_str()]);

        // It keeps fewer replicas than the class requires.
        let foreign: HorizontalPodAutoscaler = serde_json::from_value(json!({
            "metadata": {"name": "theirs"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "minReplicas": 1,
                "maxReplicas": 1,
            },
        }))
        .unwrap();
        let scalers: Api<HorizontalPodAutoscaler> = Api::namespaced(ns.client.clone(), &ns.name);
        scalers.create(&as_other_manager(), &foreign).await.unwrap();
        let foreign = objects(ns, &AUTOSCALER).get("theirs").await.unwrap();
        let what = "the autoscaler to be observed";
        wait_for_status(ns, "scaled", what, AVAILABLE_TIMEOUT, has_foreign_autoscaler).await;
        let deleted =
            await_condition(scalers.clone(), &name, |it: Option<&HorizontalPodAutoscaler>| {
                it.is_none()
            });
        within("CRM's autoscaler to be deleted", AVAILABLE_TIMEOUT, deleted).await.unwrap();

        let deployments: Api<Deployment> = Api::namespaced(ns.client.clone(), &ns.name);
        let one = json!({"spec": {"replicas": 1}});
        let params =
            PatchParams { field_manager: Some(OTHER_MANAGER.to_owned()), ..PatchParams::default() };
        deployments.patch_scale(&name, &params, &Patch::Merge(&one)).await.unwrap();
        wait_for_reconcile(ns, &DEPLOYMENT, &name).await;
        let replicas = async || deployments.get(&name).await.unwrap().spec.unwrap().replicas;
        assert_eq!(replicas().await, Some(1));

        let colour = json!({"name": "COLOUR", "value": "green"});
        spec["functions"][0]["provision"]["env"].as_array_mut().unwrap().push(colour);
        deploy(&crm.client, "scaled", &spec).await.unwrap();
        let what = "the update to be Available";
        let updated = |status: &ClassRuntimeStatus| {
            status.observed_generation == Some(2) && has_foreign_autoscaler(status)
        };
        wait_for_status(ns, "scaled", what, AVAILABLE_TIMEOUT, updated).await;
        assert_eq!(replicas().await, Some(1));
        assert_eq!(autoscalers(ns).await, ["theirs"]);
        let now = objects(ns, &AUTOSCALER).get("theirs").await.unwrap();
        assert_eq!(initial_part(&now), initial_part(&foreign));
        assert!(!is_touched(&now), "{:?}", now.managed_fields());

        scalers.delete("theirs", &DeleteParams::default()).await.unwrap();
        let own =
            await_condition(scalers, &name, |it: Option<&HorizontalPodAutoscaler>| it.is_some());
        within("CRM's autoscaler to be recreated", AVAILABLE_TIMEOUT, own).await.unwrap();
        let alone = |status: &ClassRuntimeStatus| {
            status.phase == Phase::Available && !status.is_true(FOREIGN_AUTOSCALER)
        };
        wait_for_status(ns, "scaled", "no foreign autoscaler", AVAILABLE_TIMEOUT, alone).await;
        // CRM's autoscaler restores the required replicas, and adds more under load.
        assert!(matches!(replicas().await, Some(2..=3)));
    })
    .await;
}
