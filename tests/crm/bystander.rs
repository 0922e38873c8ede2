//! A class beside those that are refused, which must not notice.

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
    Place,
    class::{available, classes, deploy, hello, of},
    crm::{Crm, Options},
    in_namespace,
    objects::READY,
};
use serde_json::{Value, json};
use tonic::Status;
use tonic_types::StatusExt as _;

/// A class beside those that are refused.
pub(crate) const NEIGHBOUR: &str = "neighbour";

/// All that would change if anybody touched the neighbour.
#[derive(Debug, PartialEq)]
struct Seen {
    phase: Phase,
    generation: Option<i64>,
    version: Option<String>,
    services: BTreeMap<String, Option<String>>,
}

async fn see_neighbour(place: &Place) -> Seen {
    let class = classes(place).get(NEIGHBOUR).await.unwrap();
    let services: Api<Service> = Api::namespaced(place.client.clone(), &place.namespace);
    let own = ListParams::default().labels(&format!("oaas.io/owner={NEIGHBOUR}"));
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

/// Runs a test beside a class that is Available, and must not notice.
pub(crate) async fn beside(place: &Place, options: &Options, test: impl AsyncFnOnce(&Crm)) {
    let crm = Crm::start(place, options).await;
    deploy(&crm.client, NEIGHBOUR, &of(&[hello("greet")])).await.unwrap();
    available(place, NEIGHBOUR).await;
    let before = see_neighbour(place).await;
    test(&crm).await;
    assert_eq!(see_neighbour(place).await, before);
}

pub(crate) async fn beside_a_neighbour(test: impl AsyncFnOnce(&Place, &Crm)) {
    in_namespace(async |place: &Place| {
        beside(place, &Options::default(), async |crm: &Crm| test(place, crm).await).await;
    })
    .await;
}

/// A class as it is, whether it can be read or not.
pub(crate) fn anyhow(place: &Place) -> Api<DynamicObject> {
    let kind = ApiResource::erase::<ClassRuntime>(&());
    Api::namespaced_with(place.client.clone(), &place.namespace, &kind)
}

/// Makes a class as `kubectl create` does.
pub(crate) async fn create(place: &Place, name: &str, spec: &Value) {
    let kind = ApiResource::erase::<ClassRuntime>(&());
    let class = DynamicObject::new(name, &kind).data(json!({"spec": spec}));
    anyhow(place).create(&PostParams::default(), &class).await.unwrap();
}

pub(crate) fn reason_of(status: &Status) -> String {
    let details = status.get_error_details();
    let info = details.error_info().unwrap_or_else(|| panic!("no details: {status:?}"));
    assert_eq!(info.domain, "oaas.io");
    info.reason.clone()
}

pub(crate) async fn set_quota(place: &Place, name: &str, hard: &Value) {
    let api: Api<ResourceQuota> = Api::namespaced(place.client.clone(), &place.namespace);
    let quota = serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"hard": hard}}));
    api.create(&PostParams::default(), &quota.unwrap()).await.unwrap();
    // Nothing is refused before what is used has been counted.
    let counted = |quota: Option<&ResourceQuota>| {
        quota
            .and_then(|quota| quota.status.as_ref()?.used.as_ref())
            .is_some_and(|used| !used.is_empty())
    };
    within("a quota", READY, await_condition(api, name, counted)).await.unwrap();
}
