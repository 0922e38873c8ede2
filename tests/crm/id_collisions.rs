//! Ids whose ClassRuntimes would have the same name.

use kube::ResourceExt as _;
use oprc_tests::{
    TestNamespace,
    class::{classes, deploy, hello, spec_of},
    crm::{Crm, Options},
    in_namespace,
};
use oprc_unit::names;
use serde_json::json;
use tonic::Code;

/// A class without pods, because only the calls are tested.
pub(crate) fn paused_class() -> serde_json::Value {
    let mut spec = spec_of(&[hello("greet")]);
    spec["paused"] = json!(true);
    spec
}

#[tokio::test]
async fn ids_with_the_same_name_never_share_a_class() {
    in_namespace(async |ns: &TestNamespace| {
        let crm = Crm::start(ns, &Options::default()).await;
        let ids = ["My.Class", "my-class", "my_class", "MY-CLASS", "my--class"];
        for id in ids {
            deploy(&crm.client, id, &paused_class()).await.unwrap();
        }
        let all = classes(ns).list(&kube::api::ListParams::default()).await.unwrap().items;
        assert_eq!(all.len(), ids.len());
        for class in &all {
            let id = class.spec.0.deployment_unit.as_ref().unwrap().id.clone();
            assert_eq!(class.name_any(), names::class_runtime(&id));
        }
        // Unit ids that differ only in case or in their cluster have the same name.
        deploy(&crm.client, "shop.Cart..east", &paused_class()).await.unwrap();
        for id in ["shop.cart..east", "shop.Cart..west"] {
            let rejected = deploy(&crm.client, id, &paused_class()).await.unwrap_err();
            assert_eq!(rejected.code(), Code::AlreadyExists, "{rejected:?}");
        }
        let kept = classes(ns).get("shop--cart").await.unwrap();
        assert_eq!(kept.spec.0.deployment_unit.unwrap().id, "shop.Cart..east");
        // A user created a ClassRuntime with the name that an id would get.
        let by_hand = oprc_crm::crd::ClassRuntime::new(
            "taken",
            serde_json::from_value(paused_class()).unwrap(),
        );
        classes(ns).create(&kube::api::PostParams::default(), &by_hand).await.unwrap();
        let rejected = deploy(&crm.client, "taken", &paused_class()).await.unwrap_err();
        assert_eq!(rejected.code(), Code::AlreadyExists, "{rejected:?}");
        let kept = classes(ns).get("taken").await.unwrap();
        assert!(kept.spec.0.deployment_unit.is_none());
    })
    .await;
}
