//! Updates converge, and requests during them succeed.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, ResourceExt as _,
    api::ListParams,
    runtime::{WatchStreamExt as _, wait::await_condition, watcher},
};
use oprc_crm::crd::{ClassRuntime, ClassRuntimeStatus};
use oprc_sandbox::{image::Image, within};
use oprc_tests::{
    HELLO, TestNamespace,
    class::{self, classes, deploy, hello, spec_of, url, wait_available, with_odgm},
    crm::{Crm, Options},
    eventually,
    fixture::{address, exactly, lasting, reach, with_crm},
    http::get_ok,
    load::{Connection, Load, Target},
    program,
};
use serde_json::{Value, json};

/// The sample function under a second name.
const HELLO_TWO: &str = "oprc.local/hello-fn:two";
/// Bound on the termination of a pod, which takes 5 s plus kubelet's work.
const TERMINATION_TIMEOUT: Duration = Duration::from_mins(3);

/// The number of requests that makes a test meaningful: a busy machine sends tens, otherwise
/// hundreds.
const SHARE: usize = 20;

/// Loads the sample function under its second name.
async fn load_second_image(ns: &TestNamespace) {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("two.oci.tar");
    Image::of_program(HELLO_TWO, &program("hello-fn")).write(&archive).unwrap();
    ns.cluster.load_image(&archive).await.unwrap();
}

fn deployments(ns: &TestNamespace) -> Api<Deployment> {
    Api::namespaced(ns.client.clone(), &ns.name)
}

fn pods(ns: &TestNamespace) -> Api<Pod> {
    Api::namespaced(ns.client.clone(), &ns.name)
}

/// Pods of a function that aren't terminating.
async fn pods_of(ns: &TestNamespace, function: &str) -> Vec<Value> {
    let labels = format!("oaas.io/function={function}");
    let all = pods(ns).list(&ListParams::default().labels(&labels)).await.unwrap();
    let staying = all.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    staying.map(|pod| serde_json::to_value(pod).unwrap()).collect()
}

/// The value of a variable in a pod.
fn variable<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    class::variable(&pod["spec"], name)
}

/// The sample function's variables and one more.
fn coloured(colour: &str) -> Value {
    let mut variables = hello("any")["provision"]["env"].clone();
    variables.as_array_mut().unwrap().push(json!({"name": "COLOUR", "value": colour}));
    variables
}

/// Like [`coloured`] with a grace period, in which connections are closed.
fn coloured_under_load(colour: &str) -> Value {
    json!([{"name": "COLOUR", "value": colour}])
}

/// Deploys and waits until that generation is Available.
async fn update(ns: &TestNamespace, crm: &Crm, name: &str, spec: &Value) -> ClassRuntimeStatus {
    let before = classes(ns).get_opt(name).await.unwrap();
    let before = before.and_then(|class| class.metadata.generation).unwrap_or(0);
    deploy(&crm.client, name, spec).await.unwrap();
    let status = wait_available(ns, name).await;
    assert_eq!(status.observed_generation, Some(before + 1));
    status
}

#[tokio::test]
async fn consecutive_updates_converge() {
    with_crm(&Options::default(), async |ns: &TestNamespace, crm: &Crm| {
        load_second_image(ns).await;
        let grid = [
            "ConfigMap/shop-odgm",
            "Deployment/shop-odgm",
            "Pod/shop-odgm",
            "Service/shop-odgm-svc",
        ];
        let greet = ["Deployment/shop--greet", "Pod/shop--greet", "Service/shop--greet"];
        let wave = ["Deployment/shop--wave", "Pod/shop--wave", "Service/shop--wave"];
        let second = ["Pod/shop--greet", "PodDisruptionBudget/shop--greet"];

        let mut spec = with_odgm(&[hello("greet"), hello("wave")]);
        update(ns, crm, "shop", &spec).await;
        exactly(ns, "what was deployed", &[&grid[..], &greet, &wave].concat()).await;

        spec["functions"][0]["image"] = json!(HELLO_TWO);
        update(ns, crm, "shop", &spec).await;
        exactly(ns, "the same objects", &[&grid[..], &greet, &wave].concat()).await;
        let running = pods_of(ns, "greet").await;
        assert_eq!(running[0]["spec"]["containers"][0]["image"], HELLO_TWO);
        assert_eq!(pods_of(ns, "wave").await[0]["spec"]["containers"][0]["image"], HELLO);

        spec["functions"][0]["provision"]["min_scale"] = json!(2);
        let status = update(ns, crm, "shop", &spec).await;
        exactly(ns, "a second pod", &[&grid[..], &greet, &wave, &second].concat()).await;
        assert_eq!(status.ready.as_deref(), Some("3/3"));
        assert!(
            deployments(ns).get("shop--greet").await.unwrap().spec.unwrap().replicas == Some(2)
        );

        spec["functions"][0]["provision"]["env"] = coloured("green");
        update(ns, crm, "shop", &spec).await;
        exactly(ns, "the same objects", &[&grid[..], &greet, &wave, &second].concat()).await;
        let running = pods_of(ns, "greet").await;
        assert_eq!(running.len(), 2);
        for pod in &running {
            assert_eq!(variable(pod, "COLOUR"), Some("green"));
            assert_eq!(variable(pod, "ODGM_ENABLED"), Some("true"));
        }

        spec["functions"].as_array_mut().unwrap().remove(1);
        let status = update(ns, crm, "shop", &spec).await;
        assert_eq!(status.ready.as_deref(), Some("2/2"));
        exactly(ns, "one function less", &[&grid[..], &greet, &second].concat()).await;

        spec["addons"] = json!([]);
        spec.as_object_mut().unwrap().remove("odgm_config");
        let status = update(ns, crm, "shop", &spec).await;
        assert_eq!((status.ready.as_deref(), status.odgm.is_none()), (Some("1/1"), true));
        exactly(ns, "no data grid", &[&greet[..], &second].concat()).await;
        for pod in &pods_of(ns, "greet").await {
            let all = pod["spec"]["containers"][0]["env"].as_array().unwrap();
            let of_grid = all.iter().find(|one| one["name"].as_str().unwrap().starts_with("ODGM_"));
            assert_eq!(of_grid, None);
            assert_eq!(variable(pod, "COLOUR"), Some("green"));
        }
        let url = address(ns, "shop--greet").await;
        eventually("a response", TERMINATION_TIMEOUT, || get_ok(&url)).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_update_under_load_drops_no_request() {
    with_crm(&Options::default(), async |ns: &TestNamespace, crm: &Crm| {
        let mut spec = spec_of(&[hello("greet")]);
        spec["functions"][0]["provision"]["min_scale"] = json!(2);
        spec["functions"][0]["provision"]["env"] = coloured_under_load("blue");
        update(ns, crm, "busy", &spec).await;
        let url = address(ns, "busy--greet").await;
        // kube-proxy doesn't report when it has programmed the pods.
        eventually("a response", TERMINATION_TIMEOUT, || get_ok(&url)).await;
        let before: Vec<String> = pods(ns)
            .list(&ListParams::default())
            .await
            .unwrap()
            .iter()
            .map(Pod::name_any)
            .collect();
        assert_eq!(before.len(), 2);

        let load = Load::begin(Target::plain(&url));
        spec["functions"][0]["provision"]["env"] = coloured_under_load("green");
        update(ns, crm, "busy", &spec).await;
        // The old pods are still terminating.
        for pod in &before {
            let deleted = await_condition(pods(ns), pod, |pod: Option<&Pod>| pod.is_none());
            within(&format!("{pod} to be deleted"), TERMINATION_TIMEOUT, deleted).await.unwrap();
        }
        let sent = load.end().await;
        for (way, count) in &sent {
            assert!(*count >= SHARE, "only {count} requests were sent by {way:?}");
        }
        let now = pods_of(ns, "greet").await;
        assert!(now.len() == 2 && now.iter().all(|pod| variable(pod, "COLOUR") == Some("green")));
    })
    .await;
}

/// Directs the load to the URL in the class's status while it is polled, and records the URLs.
async fn follow_url(
    ns: &TestNamespace,
    name: &str,
    load: &Load,
    urls: &std::sync::Mutex<Vec<String>>,
) {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut versions = watcher(classes(ns), config).applied_objects().boxed();
    while let Some(class) = versions.try_next().await.unwrap() {
        let class: ClassRuntime = class;
        let url = url(class.status.as_ref().unwrap(), "greet");
        if urls.lock().unwrap().last() != Some(&url) {
            load.turn_to(reach(ns, &url).await);
            urls.lock().unwrap().push(url);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_url_in_status_responds_during_template_changes() {
    with_crm(&Options::default(), async |ns: &TestNamespace, crm: &Crm| {
        let mut spec = spec_of(&[hello("greet")]);
        spec["functions"][0]["provision"]["min_scale"] = json!(1);
        spec["functions"][0]["provision"]["env"] = coloured_under_load("blue");
        // Knative's grace period is the timeout of a call.
        spec["functions"][0]["config"] = json!({"timeout_ms": 5000});
        // Time for the load to follow the new URL.
        spec["rollout"] = json!({"drain_seconds": 8});
        spec["selected_template"] = json!("k8s_deployment");
        let plain = url(&update(ns, crm, "moves", &spec).await, "greet");
        let target = reach(ns, &plain).await;
        eventually("a response", TERMINATION_TIMEOUT, || get_ok(&target.url)).await;

        let urls = Arc::new(std::sync::Mutex::new(vec![plain.clone()]));
        let plain_target = target.clone();
        let load = Load::begin(target);
        let moves = async {
            spec["selected_template"] = json!("knative");
            let knative = url(&update(ns, crm, "moves", &spec).await, "greet");
            let gateway = reach(ns, &knative).await;
            // The replaced objects are deleted after draining.
            eventually("the Deployment to be deleted", TERMINATION_TIMEOUT, || async {
                let names = lasting(ns).await;
                let left = ["Deployment/moves--greet", "Service/moves--greet"];
                let left = left.iter().find(|name| names.iter().any(|it| it == *name));
                left.map_or(Ok(()), |name| Err(format!("{name} is left")))
            })
            .await;
            spec["selected_template"] = json!("k8s_deployment");
            assert_eq!(url(&update(ns, crm, "moves", &spec).await, "greet"), plain);
            let expected = ["Deployment/moves--greet", "Pod/moves--greet", "Service/moves--greet"];
            exactly(ns, "Knative's objects to be deleted", &expected).await;
            (knative, gateway)
        };
        let (knative, gateway) = tokio::select! {
            knative = moves => knative,
            () = follow_url(ns, "moves", &load, &urls) => unreachable!("watches don't end"),
        };
        let sent = load.end().await;
        // Both URLs were called, with new and reused connections.
        for target in [plain_target, gateway] {
            for connection in [Connection::New, Connection::Kept] {
                let count = sent.get(&(target.clone(), connection)).copied().unwrap_or_default();
                assert!(count >= SHARE, "only {count} requests to {target:?} by {connection:?}");
            }
        }
        assert_eq!(*urls.lock().unwrap(), [plain.clone(), knative, plain]);
    })
    .await;
}
