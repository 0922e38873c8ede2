//! A namespace with a CRM, and helpers that observe objects in it.

use std::{
    panic::{AssertUnwindSafe, resume_unwind},
    time::{Duration, Instant},
};

use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams, WatchEvent, WatchParams},
};
use oprc_sandbox::within;

use crate::{
    TestNamespace,
    class::list_objects,
    crm::{Crm, Options},
    eventually,
    http::get,
    in_namespace,
    load::Target,
};

/// Includes the grace period of pods.
const DELETION_TIMEOUT: Duration = Duration::from_mins(3);
/// Bound on [`wait_for_response`].
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(3);
/// Bound on [`follow`].
const WATCH_TIMEOUT: Duration = Duration::from_mins(1);

/// Runs a test with a CRM in a namespace of its own, and prints the objects if it fails.
pub async fn with_crm(options: &Options, test: impl AsyncFnOnce(&TestNamespace, &Crm)) {
    in_namespace(async |ns: &TestNamespace| {
        let crm = Crm::start(ns, options).await;
        let outcome = AssertUnwindSafe(test(ns, &crm)).catch_unwind().await;
        if outcome.is_err() {
            print_objects(ns);
        }
        crm.stop().await;
        if let Err(panic) = outcome {
            resume_unwind(panic);
        }
    })
    .await;
}

/// Prints the objects of a failed test.
fn print_objects(ns: &TestNamespace) {
    let mut kubectl = ns.cluster.kubectl();
    let kinds = "deployments,replicasets,pods,services,horizontalpodautoscalers";
    let shown = kubectl.args(["-n", &ns.name, "get", kinds, "-o", "wide"]).output();
    println!("{}", String::from_utf8_lossy(&shown.unwrap().stdout));
}

/// The URL of a Service for this machine.
pub async fn address(ns: &TestNamespace, service: &str) -> String {
    let api: Api<Service> = Api::namespaced(ns.client.clone(), &ns.name);
    let service = api.get(service).await.unwrap();
    format!("http://{}", service.spec.unwrap().cluster_ip.unwrap())
}

/// How this machine reaches a function's URL.
pub async fn reach(ns: &TestNamespace, url: &str) -> Target {
    let host = url.strip_prefix("http://").unwrap().to_owned();
    let service = host.split('.').next().unwrap();
    if service.ends_with("-kn") {
        let gateways: Api<Service> = Api::namespaced(ns.client.clone(), "kourier-system");
        let gateway = gateways.get("kourier-internal").await.unwrap();
        let url = format!("http://{}", gateway.spec.unwrap().cluster_ip.unwrap());
        Target { url, host: Some(host) }
    } else {
        Target::plain(&address(ns, service).await)
    }
}

/// Waits until a function responds: kube-proxy doesn't report when it has programmed the pods.
pub async fn wait_for_response(target: &Target) {
    eventually("a response", RESPONSE_TIMEOUT, || async {
        let (status, body) = get(&target.url, target.host.as_deref()).await?;
        if status == 200 { Ok(()) } else { Err(format!("{status}: {body}")) }
    })
    .await;
}

/// Watches an object from a resource version until it matches, and returns when that was. No
/// version in between is missed.
pub async fn follow(
    api: &Api<DynamicObject>,
    name: &str,
    since: &str,
    what: &str,
    matches: impl Fn(Option<&DynamicObject>) -> bool,
) -> Result<Instant, oprc_sandbox::Error> {
    let only = WatchParams::default().fields(&format!("metadata.name={name}"));
    let wait = async {
        let mut events = api.watch(&only, since).await.map_err(|error| error.to_string())?.boxed();
        while let Some(event) = events.try_next().await.map_err(|error| error.to_string())? {
            let done = match &event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => matches(Some(object)),
                WatchEvent::Deleted(_) => matches(None),
                _ => false,
            };
            if done {
                return Ok(Instant::now());
            }
        }
        Err("the watch has ended".to_owned())
    };
    within(what, WATCH_TIMEOUT, wait).await
}

/// Kinds and names of all objects that aren't terminating; pods have the name of their Deployment.
pub async fn lasting(ns: &TestNamespace) -> Vec<String> {
    let mut names = list_objects(ns).await;
    names.retain(|name| !name.starts_with("Pod/"));
    let pods: Api<Pod> = Api::namespaced(ns.client.clone(), &ns.name);
    let pods = pods.list(&ListParams::default().labels("oaas.io/owner")).await.unwrap();
    let staying = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    names.extend(staying.map(|pod| format!("Pod/{}", workload(&pod.name_any()))));
    names.sort();
    names
}

/// The name of a pod's Deployment.
fn workload(pod: &str) -> &str {
    pod.rsplitn(3, '-').last().unwrap()
}

/// Waits until exactly these objects exist, as [`lasting`] names them.
pub async fn exactly(ns: &TestNamespace, what: &str, expected: &[&str]) {
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    eventually(what, DELETION_TIMEOUT, || async {
        let names = lasting(ns).await;
        if names == expected { Ok(()) } else { Err(format!("{names:?} instead of {expected:?}")) }
    })
    .await;
}
