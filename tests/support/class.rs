//! Classes that tests deploy, and helpers that wait for them.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt as _, future::join_all};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams},
    runtime::{
        WatchStreamExt as _,
        wait::await_condition,
        watcher::{self, Event},
    },
};
use oprc_crm::{
    crd::{ClassRuntime, ClassRuntimeStatus, Phase},
    kinds::{BUILT_IN, KNATIVE_SERVICE, Kind},
};
use oprc_grpc::deployment::{
    DeleteDeploymentRequest, DeployRequest, DeployResponse, unit::ClassSpec,
};
use oprc_sandbox::within;
use serde_json::{Value, json};
use tonic::{Request, Status};

use crate::{HELLO, TestNamespace, crm::Client};

/// A ConfigMap that every namespace has.
const ROOT_CA: &str = "kube-root-ca.crt";
/// Bound on a rollout on a real node.
pub const AVAILABLE_TIMEOUT: Duration = Duration::from_mins(4);

/// The sample function with frequent probes, so that tests are fast, and a high failure threshold,
/// because the machine may be busy.
pub fn hello(key: &str) -> Value {
    json!({
        "key": key,
        "image": HELLO,
        "health_check": {
            "path": "/healthz", "period_seconds": 1, "timeout_seconds": 3, "failure_threshold": 100,
        },
        "provision": {
            "image_pull_policy": "Never",
            "requests": {"cpu": "10m", "memory": "16Mi"},
            // Tests need no grace period.
            "env": [{"name": "DRAIN_MS", "value": "0"}],
        },
    })
}

/// The sample function with a tenth of a CPU: an instance serves 20 requests/s that use 5 ms each.
pub fn hello_with_little_cpu(key: &str, max_scale: u32) -> Value {
    let mut function = hello(key);
    let provision = function.get_mut("provision").and_then(Value::as_object_mut);
    provision.expect("an object").extend([
        ("requests".to_owned(), json!({"cpu": "100m", "memory": "16Mi"})),
        ("limits".to_owned(), json!({"cpu": "100m", "memory": "64Mi"})),
        ("min_scale".to_owned(), json!(1)),
        ("max_scale".to_owned(), json!(max_scale)),
    ]);
    function
}

/// A function for a Job: the sample function's client sends one request and exits.
pub fn calls_once(key: &str, url: &str) -> Value {
    let mut run = hello(key);
    let provision = run.get_mut("provision").and_then(Value::as_object_mut);
    provision.expect("an object").insert("args".to_owned(), json!(["get", url]));
    run.as_object_mut().expect("an object").remove("health_check");
    run
}

pub fn spec_of(functions: &[Value]) -> Value {
    json!({"functions": functions})
}

/// A specification of these functions with a data grid.
pub fn with_odgm(functions: &[Value]) -> Value {
    json!({
        "functions": functions,
        "addons": ["odgm"],
        "odgm_config": {
            "collections": [{"name": "orders"}],
            "requests": {"cpu": "10m", "memory": "16Mi"},
        },
    })
}

pub fn request(id: &str, spec: &Value) -> DeployRequest {
    let spec: ClassSpec = serde_json::from_value(spec.clone()).expect("a specification");
    DeployRequest { deployment_id: id.to_owned(), namespace: String::new(), spec: Some(spec) }
}

pub async fn deploy(client: &Client, id: &str, spec: &Value) -> Result<DeployResponse, Status> {
    let mut message = Request::new(request(id, spec));
    message.set_timeout(Duration::from_mins(1));
    client.clone().deploy(message).await.map(tonic::Response::into_inner)
}

pub async fn delete(client: &Client, id: &str) -> Result<(), Status> {
    let request =
        DeleteDeploymentRequest { deployment_id: id.to_owned(), namespace: String::new() };
    client.clone().delete_deployment(request).await.map(|_| ())
}

pub fn classes(ns: &TestNamespace) -> Api<ClassRuntime> {
    Api::namespaced(ns.client.clone(), &ns.name)
}

/// Removes the finalizers of classes whose CRM ended with its test; otherwise their namespace would
/// stay terminating.
pub(crate) async fn remove_finalizers(ns: &TestNamespace) {
    let api = classes(ns);
    // Metadata only: some classes can't be decoded. A cluster without the CRD has none.
    let Ok(all) = api.list_metadata(&ListParams::default()).await else { return };
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let params = PatchParams::default();
    let (api, patch, params) = (&api, &patch, &params);
    join_all(all.iter().map(async |class| {
        // An error means that the class is already deleted.
        let _ = api.patch_metadata(&class.name_any(), params, patch).await;
    }))
    .await;
}

/// Waits until an object matches, and returns it. A failed watch is restarted.
pub async fn wait_for<K>(
    api: &Api<K>,
    name: &str,
    what: &str,
    limit: Duration,
    matches: impl Fn(Option<&K>) -> bool,
) -> Result<Option<K>, oprc_sandbox::Error>
where
    K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let waiting = async {
        loop {
            match await_condition(api.clone(), name, &matches).await {
                Ok(object) => return Ok::<_, String>(object),
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    };
    // Boxed, because the future is large.
    within(what, limit, Box::pin(waiting)).await
}

/// Waits until the status of a class's latest generation matches, and returns it.
pub async fn wait_for_status(
    ns: &TestNamespace,
    name: &str,
    what: &str,
    limit: Duration,
    matches: impl Fn(&ClassRuntimeStatus) -> bool,
) -> ClassRuntimeStatus {
    let condition = |class: Option<&ClassRuntime>| {
        class.is_some_and(|class| {
            class.status.as_ref().is_some_and(|status| {
                status.observed_generation == class.metadata.generation && matches(status)
            })
        })
    };
    let api = classes(ns);
    match wait_for(&api, name, what, limit, condition).await {
        // The matching status, which may have changed since.
        Ok(class) => class.unwrap().status.unwrap(),
        Err(error) => {
            let status = api.get(name).await.map(|class| class.status);
            panic!("{error}: {status:#?}")
        }
    }
}

pub async fn wait_available(ns: &TestNamespace, name: &str) -> ClassRuntimeStatus {
    let is_available = |status: &ClassRuntimeStatus| status.phase == Phase::Available;
    let what = format!("{name} to be Available");
    wait_for_status(ns, name, &what, AVAILABLE_TIMEOUT, is_available).await
}

pub async fn wait_degraded(ns: &TestNamespace, name: &str, reason: &str) -> ClassRuntimeStatus {
    let what = format!("{name} to be Degraded by {reason}");
    let is_degraded = |status: &ClassRuntimeStatus| {
        status.phase == Phase::Degraded && status.reason.as_deref() == Some(reason)
    };
    wait_for_status(ns, name, &what, AVAILABLE_TIMEOUT, is_degraded).await
}

pub async fn wait_deleted(ns: &TestNamespace, name: &str) {
    let absent = |class: Option<&ClassRuntime>| class.is_none();
    let what = format!("{name} to be deleted");
    wait_for(&classes(ns), name, &what, AVAILABLE_TIMEOUT, absent).await.unwrap();
}

/// The URL of a function in a status.
pub fn url(status: &ClassRuntimeStatus, key: &str) -> String {
    let function = status.functions.iter().find(|it| it.key == key).expect("the function");
    function.url.clone().unwrap_or_else(|| panic!("{key} has no URL: {function:?}"))
}

/// Objects of any kind in the test's namespace.
pub fn objects(ns: &TestNamespace, kind: &Kind) -> Api<DynamicObject> {
    Api::namespaced_with(ns.client.clone(), &ns.name, &kind.resource())
}

/// All objects of a kind in the test's namespace that the cluster didn't create by itself.
pub async fn list(ns: &TestNamespace, kind: &Kind) -> Vec<DynamicObject> {
    let mut all = objects(ns, kind).list(&ListParams::default()).await.unwrap().items;
    all.retain(|it| it.name_any() != ROOT_CA);
    all
}

/// The value of a variable in the first container of a pod's specification.
pub fn variable<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    let mut all = pod.pointer("/containers/0/env")?.as_array()?.iter();
    let one = all.find(|one| one.get("name").and_then(Value::as_str) == Some(name))?;
    Some(one.get("value").and_then(Value::as_str).unwrap_or_default())
}

/// Watches all objects of a kind until they match.
pub async fn wait_for_all<K>(
    api: &Api<K>,
    what: &str,
    limit: Duration,
    matches: impl Fn(&BTreeMap<String, K>) -> bool,
) where
    K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let mut all = BTreeMap::new();
    let watching = async {
        let events = watcher::watcher(api.clone(), watcher::Config::default()).default_backoff();
        let mut events = std::pin::pin!(events);
        let mut complete = false;
        while let Some(event) = events.next().await {
            // A failed watch is restarted.
            let Ok(event) = event else { continue };
            match event {
                Event::Init => all.clear(),
                Event::InitApply(object) | Event::Apply(object) => {
                    all.insert(object.name_any(), object);
                }
                Event::Delete(object) => drop(all.remove(&object.name_any())),
                Event::InitDone => complete = true,
            }
            if complete && matches(&all) {
                break;
            }
        }
        Ok::<_, String>(())
    };
    if let Err(error) = within(what, limit, watching).await {
        panic!("{error}: {all:#?}");
    }
}

/// Kinds and names of all objects in the test's namespace that CRM or its children create.
pub async fn list_objects(ns: &TestNamespace) -> Vec<String> {
    let mut names = Vec::new();
    let mut kinds = BUILT_IN.to_vec();
    if ns.cluster.spec().knative {
        kinds.push(KNATIVE_SERVICE);
    }
    for kind in kinds {
        let objects = list(ns, &kind).await;
        names.extend(objects.iter().map(|object| format!("{kind}/{}", object.name_any())));
    }
    let pods: Api<Pod> = Api::namespaced(ns.client.clone(), &ns.name);
    let pods = pods.list(&ListParams::default().labels("oaas.io/owner")).await.unwrap();
    names.extend(pods.iter().map(|pod| format!("Pod/{}", pod.name_any())));
    names.sort();
    names
}
