//! Applies manifests of this repository without kubectl.

use std::fs;

use futures::future::join_all;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::Value;

use crate::workspace;

const CLUSTER_SCOPED: [&str; 4] =
    ["Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"];

fn documents(file: &str) -> Vec<DynamicObject> {
    let text = fs::read_to_string(workspace().join(file)).expect("a manifest");
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
    let documents = documents.into_iter().filter(|document| !document.is_null());
    documents.map(|document| serde_json::from_value(document).expect("an object")).collect()
}

async fn apply_one(client: Client, namespace: &str, object: &DynamicObject) {
    let types = object.types.clone().expect("a kind");
    let kind = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).expect("a kind"));
    let api: Api<DynamicObject> = if CLUSTER_SCOPED.contains(&types.kind.as_str()) {
        Api::all_with(client, &kind)
    } else {
        let own = object.namespace();
        Api::namespaced_with(client, own.as_deref().unwrap_or(namespace), &kind)
    };
    let params = PatchParams::apply("tests").force();
    let applied = api.patch(&object.name_any(), &params, &Patch::Apply(object)).await;
    applied.unwrap_or_else(|error| panic!("{} {}: {error}", types.kind, object.name_any()));
}

/// Applies a file; objects without a namespace go into `namespace`.
pub async fn apply(client: &Client, namespace: &str, file: &str) {
    // Namespaces first.
    let is_namespace =
        |it: &DynamicObject| it.types.as_ref().is_some_and(|it| it.kind == "Namespace");
    let (first, then): (Vec<_>, Vec<_>) = documents(file).into_iter().partition(is_namespace);
    for objects in [first, then] {
        join_all(objects.iter().map(|it| apply_one(client.clone(), namespace, it))).await;
    }
}
