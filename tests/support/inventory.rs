//! All objects of a namespace.

use std::{collections::BTreeSet, time::Duration};

use futures::future::join_all;
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams},
    discovery::{Discovery, Scope, verbs},
};
use tokio::sync::OnceCell;

use crate::{TestNamespace, class::list_objects, eventually};

/// Includes the grace period of pods.
const DELETION_TIMEOUT: Duration = Duration::from_mins(3);
/// Groups of objects that the cluster creates and deletes by itself.
const IGNORED_GROUPS: [&str; 2] = ["events.k8s.io", "metrics.k8s.io"];
/// Objects that every namespace or every CRM has, created asynchronously.
const IGNORED_OBJECTS: [&str; 3] =
    ["ConfigMap/kube-root-ca.crt", "ServiceAccount/default", "Lease/oprc-crm"];

/// The kinds that the shared cluster can list in a namespace.
async fn kinds(ns: &TestNamespace) -> Vec<ApiResource> {
    static KINDS: OnceCell<Vec<ApiResource>> = OnceCell::const_new();
    let discover = async || {
        let found = Discovery::new(ns.client.clone()).run().await.expect("discovery");
        let all = found.groups().flat_map(kube::discovery::ApiGroup::recommended_resources);
        all.filter(|(kind, can)| {
            can.scope == Scope::Namespaced
                && can.supports_operation(verbs::LIST)
                && !IGNORED_GROUPS.contains(&kind.group.as_str())
                && kind.kind != "Event"
        })
        .map(|(kind, _)| kind)
        .collect()
    };
    KINDS.get_or_init(discover).await.clone()
}

/// Kinds and names of all objects in a test's namespace.
pub async fn inventory(ns: &TestNamespace) -> BTreeSet<String> {
    let kinds = kinds(ns).await;
    let lists = kinds.iter().map(async |kind| {
        let api: Api<DynamicObject> = Api::namespaced_with(ns.client.clone(), &ns.name, kind);
        let all = api.list_metadata(&ListParams::default()).await.expect("a list");
        all.iter().map(|it| format!("{}/{}", kind.kind, it.name_any())).collect::<Vec<_>>()
    });
    let mut all: BTreeSet<_> = join_all(lists).await.into_iter().flatten().collect();
    all.retain(|name| !IGNORED_OBJECTS.contains(&name.as_str()));
    all
}

/// Waits until only the objects in `before` and `stays` exist.
pub async fn wait_for_only(ns: &TestNamespace, before: &BTreeSet<String>, stays: &[&str]) {
    // The kinds that CRM creates come first, because listing all kinds takes dozens of requests.
    eventually("its objects to be deleted", DELETION_TIMEOUT, || async {
        let left = list_objects(ns).await;
        if left.is_empty() { Ok(()) } else { Err(format!("left: {left:?}")) }
    })
    .await;
    let stays: BTreeSet<String> = stays.iter().map(|name| (*name).to_owned()).collect();
    eventually("everything to be deleted", DELETION_TIMEOUT, || async {
        let now = inventory(ns).await;
        let left: BTreeSet<String> = now.difference(before).cloned().collect();
        if left == stays { Ok(()) } else { Err(format!("left: {left:?}")) }
    })
    .await;
}
