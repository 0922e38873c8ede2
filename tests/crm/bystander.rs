//! A valid class next to rejected ones, which must not be affected.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ResourceQuota, Service};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams, PostParams},
    runtime::wait::await_condition,
};
use oprc_crm::crd::{ClassRuntime, Phase};
use oprc_sandbox::within;
use oprc_tests::{
    TestNamespace,
    class::{classes, deploy, hello, spec_of, wait_available},
    crm::{Crm, Options},
    in_namespace,
    objects::READY_TIMEOUT,
};
use serde_json::{Value, json};
use tonic::Status;
use tonic_types::StatusExt as _;

/// The name of the valid class.
pub(crate) const BYSTANDER: &str = "bystander";

/// Everything that changes when the bystander is written or restarted.
#[derive(Debug, PartialEq)]
struct Seen {
    phase: Phase,
    generation: Option<i64>,
    version: Option<String>,
    services: BTreeMap<String, Option<String>>,
}

async fn observe_bystander(ns: &TestNamespace) -> Seen {
    let class = classes(ns).get(BYSTANDER).await.unwrap();
    let services: Api<Service> = Api::namespaced(ns.client.clone(), &ns.name);
    let own = ListParams::default().labels(&format!("oaas.io/owner={BYSTANDER}"));
    let services = services.list(&own).await.unwrap();
    assert!(!services.items.is_empty());
    Seen {
        phase: class.status.as_ref().unwrap().phase,
        generation: class.metadata.generation,
        version: class.metadata.resource_version,
        services: services
            .into_iter()
            .map(|it| (it.name_any(), it.metadata.resource_version))
            .collect(),
    }
}

/// Runs a test next to an Available class, which must not be affected.
pub(crate) async fn with_bystander_and(
    ns: &TestNamespace,
    options: &Options,
    test: impl AsyncFnOnce(&Crm),
) {
    let crm = Crm::start(ns, options).await;
    deploy(&crm.client, BYSTANDER, &spec_of(&[hello("greet")])).await.unwrap();
    wait_available(ns, BYSTANDER).await;
    let before = observe_bystander(ns).await;
    test(&crm).await;
    assert_eq!(observe_bystander(ns).await, before);
}

pub(crate) async fn with_bystander(test: impl AsyncFnOnce(&TestNamespace, &Crm)) {
    in_namespace(async |ns: &TestNamespace| {
        with_bystander_and(ns, &Options::default(), async |crm: &Crm| test(ns, crm).await).await;
    })
    .await;
}

/// Classes without decoding.
pub(crate) fn raw_classes(ns: &TestNamespace) -> Api<DynamicObject> {
    let kind = ApiResource::erase::<ClassRuntime>(&());
    Api::namespaced_with(ns.client.clone(), &ns.name, &kind)
}

/// Creates a class as `kubectl create` does.
pub(crate) async fn create(ns: &TestNamespace, name: &str, spec: &Value) {
    let kind = ApiResource::erase::<ClassRuntime>(&());
    let class = DynamicObject::new(name, &kind).data(json!({"spec": spec}));
    raw_classes(ns).create(&PostParams::default(), &class).await.unwrap();
}

pub(crate) fn reason_of(status: &Status) -> String {
    let details = status.get_error_details();
    let info = details.error_info().unwrap_or_else(|| panic!("no details: {status:?}"));
    assert_eq!(info.domain, "oaas.io");
    info.reason.clone()
}

pub(crate) async fn set_quota(ns: &TestNamespace, name: &str, hard: &Value) {
    let api: Api<ResourceQuota> = Api::namespaced(ns.client.clone(), &ns.name);
    let quota = serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"hard": hard}}));
    api.create(&PostParams::default(), &quota.unwrap()).await.unwrap();
    // The quota is enforced once its usage is known.
    let counted = |quota: Option<&ResourceQuota>| {
        quota
            .and_then(|quota| quota.status.as_ref()?.used.as_ref())
            .is_some_and(|used| !used.is_empty())
    };
    within("a quota", READY_TIMEOUT, await_condition(api, name, counted)).await.unwrap();
}
