//! Applies manifests to a cluster and waits for objects to become ready.

use std::{
    collections::{HashMap, hash_map::Entry},
    future::Future,
    time::Duration,
};

use k8s_openapi::{
    api::{apps::v1::Deployment, coordination::v1::Lease, core::v1::Node},
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, Patch, PatchParams, TypeMeta},
    core::GroupVersionKind,
    discovery::{self, Scope},
    runtime::wait::await_condition,
};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::{Error, Result};

const MANAGER: &str = "oprc-sandbox";
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Parses the objects of a manifest after replacing each `@NAME@` with its value.
pub fn documents(text: &str, values: &[(&str, String)]) -> Result<Vec<Value>> {
    let mut text = text.to_owned();
    for (name, value) in values {
        text = text.replace(&format!("@{name}@"), value);
    }
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
        .map_err(|error| Error::failed("Reading a manifest", error))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// Applies objects in the given order.
pub async fn apply(client: &Client, documents: &[Value]) -> Result<()> {
    let mut kinds: HashMap<TypeMeta, (ApiResource, Scope)> = HashMap::new();
    for document in documents {
        let object: DynamicObject = serde_json::from_value(document.clone()).map_err(|error| {
            Error::failed("Reading a manifest", format!("{error} in {document}"))
        })?;
        let types = object.types.clone().unwrap_or_default();
        let what = format!("applying {} {}", types.kind, object.name_any());
        let (resource, scope) = match kinds.entry(types) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let kind = GroupVersionKind::try_from(unknown.key());
                let kind = kind.map_err(|error| Error::failed(&what, error))?;
                let discovery = discovery::pinned_kind(client, &kind);
                let (resource, capabilities) = within(&what, REQUEST_TIMEOUT, discovery).await?;
                unknown.insert((resource, capabilities.scope))
            }
        };
        let namespace = object.namespace().unwrap_or_else(|| "default".to_owned());
        let api: Api<DynamicObject> = match scope {
            Scope::Cluster => Api::all_with(client.clone(), resource),
            Scope::Namespaced => Api::namespaced_with(client.clone(), &namespace, resource),
        };
        let params = PatchParams::apply(MANAGER).force();
        let patch = Patch::Apply(document);
        within(&what, REQUEST_TIMEOUT, api.patch(&object.name_any(), &params, &patch)).await?;
    }
    Ok(())
}

/// Awaits a future for at most `limit`. The error names `what` was awaited.
pub async fn within<T, E: std::fmt::Display>(
    what: &str,
    limit: Duration,
    wait: impl Future<Output = Result<T, E>>,
) -> Result<T> {
    let finished = timeout(limit, wait).await.map_err(|_| Error::timeout(what, limit))?;
    finished.map_err(|error| Error::failed(what, error))
}

/// Polls a state that can't be watched, for at most `limit`. The error names `what` was awaited.
pub(crate) async fn poll_until(
    what: &str,
    limit: Duration,
    is_reached: impl AsyncFn() -> bool,
) -> Result<()> {
    let reached = async {
        while !is_reached().await {
            sleep(POLL_INTERVAL).await;
        }
        Ok::<_, Error>(())
    };
    within(what, limit, reached).await
}

/// Waits until all replicas of a Deployment are updated and available.
pub async fn deployment_ready(
    client: &Client,
    namespace: &str,
    name: &str,
    limit: Duration,
) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let is_ready = |deployment: Option<&Deployment>| {
        let Some(deployment) = deployment else { return false };
        let desired = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        deployment.status.as_ref().is_some_and(|status| {
            let counts = [status.updated_replicas, status.available_replicas, status.replicas];
            status.observed_generation >= deployment.metadata.generation
                && counts.iter().all(|count| count.unwrap_or_default() == desired)
        })
    };
    let ready = await_condition(deployments, name, is_ready);
    within(&format!("Deployment {namespace}/{name} to be ready"), limit, ready).await.map(drop)
}

/// Waits until a node is ready and has renewed its lease after `since`. After a restart of the
/// cluster the Ready condition may be stale.
pub(crate) async fn node_ready(
    client: &Client,
    name: &str,
    since: Option<Timestamp>,
    limit: Duration,
) -> Result<()> {
    let is_ready = |node: Option<&Node>| {
        let conditions = node.and_then(|node| node.status.as_ref()?.conditions.as_ref());
        conditions
            .is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
    };
    let ready = await_condition(Api::<Node>::all(client.clone()), name, is_ready);
    within(&format!("node {name} to be ready"), limit, ready).await?;
    let Some(since) = since else { return Ok(()) };
    let is_renewed = |lease: Option<&Lease>| {
        let renewed = lease.and_then(|lease| lease.spec.as_ref()?.renew_time.as_ref());
        renewed.is_some_and(|renewed| renewed.0 >= since)
    };
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let renewed = await_condition(leases, name, is_renewed);
    within(&format!("node {name} to renew its lease"), limit, renewed).await.map(drop)
}

/// Polls the readiness of the API server; watches don't work before that.
pub(crate) async fn api_ready(client: &Client, limit: Duration) -> Result<()> {
    let is_ready = async || {
        let Ok(request) = hyper::Request::get("/readyz").body(Vec::new()) else { return false };
        let response = timeout(Duration::from_secs(2), client.request_text(request)).await;
        response.is_ok_and(|response| response.is_ok())
    };
    poll_until("the API server to be ready", limit, is_ready).await
}
