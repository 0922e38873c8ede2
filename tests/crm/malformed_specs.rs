//! Malformed classes don't affect others.

use std::{
    collections::BTreeMap,
    panic,
    sync::{Mutex, Once},
};

use futures::StreamExt as _;
use hyper::Request;
use kube::{
    ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams},
};
use oprc_grpc::deployment::{DeployRequest, unit::ClassSpec};
use oprc_tests::{
    TestNamespace,
    class::{AVAILABLE_TIMEOUT, hello, spec_of, wait_available, wait_for_all},
    crm::{Crm, Options},
    eventually,
    http::get_ok,
    in_namespace_of, with_simulated,
};
use serde_json::{Value, json};
use tonic::Code;

use crate::{
    bystander::{BYSTANDER, create, raw_classes, reason_of, set_quota, with_bystander_and},
    spec_fuzzer::{self, Dice},
};

/// Classes per batch.
const BATCH: usize = 100;
/// Concurrent requests.
const AT_ONCE: usize = 8;

/// Panics outside of the tests.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Records panics of CRM and its dependencies; those of tests are located in `tests/`.
fn watch_for_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !panic.location().is_some_and(|it| it.file().starts_with("tests/")) {
                PANICS.lock().unwrap().push(panic.to_string());
            }
            usual(panic);
        }));
    });
}

/// Creates a class from any text; the error is the HTTP status.
async fn post(ns: &TestNamespace, name: &str, spec: &str) -> Result<(), u16> {
    let path = format!("/apis/oaas.io/v1alpha1/namespaces/{}/classruntimes", ns.name);
    let body = format!(
        r#"{{"apiVersion": "oaas.io/v1alpha1", "kind": "ClassRuntime", "metadata": {{"name": "{name}"}}, "spec": {spec}}}"#
    );
    let request = Request::post(path).header("content-type", "application/json");
    let request = request.body(body.into_bytes()).unwrap();
    match ns.client.request_text(request).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(error) => panic!("{spec}: {error}"),
    }
}

/// The specification as a message, without fields that the message doesn't have.
fn message(spec: &str) -> Option<ClassSpec> {
    let mut spec: Value = serde_json::from_str(spec).ok()?;
    loop {
        let unknown = match serde_json::from_value(spec.clone()) {
            Ok(message) => return Some(message),
            Err(error) => error.to_string(),
        };
        let name = unknown.strip_prefix("unknown field `")?.split('`').next()?;
        if !remove(&mut spec, name) {
            return None;
        }
    }
}

/// Removes all fields of this name, and returns whether there were any.
fn remove(value: &mut Value, name: &str) -> bool {
    let (mut found, below): (bool, Vec<&mut Value>) = match value {
        Value::Object(map) => (map.remove(name).is_some(), map.values_mut().collect()),
        Value::Array(items) => (false, items.iter_mut().collect()),
        _ => return false,
    };
    for value in below {
        found |= remove(value, name);
    }
    found
}

#[derive(Default)]
struct Count {
    accepted: usize,
    deployed: usize,
    rejected: BTreeMap<String, usize>,
    seen: BTreeMap<String, usize>,
}

async fn send(ns: &TestNamespace, crm: &Crm, batch: &[usize], count: &mut Count) {
    let one = async |round: usize| {
        let mut dice = Dice::of_round(round);
        let spec = spec_fuzzer::specification(&mut dice);
        let name = spec_fuzzer::name(round, &mut dice);
        let accepted = match post(ns, &name, &spec).await {
            Ok(()) => true,
            Err(400..500) => false,
            Err(code) => panic!("round {round}: {code} by the API server for {spec}"),
        };
        let Some(message) = message(&spec) else {
            return (accepted, Err("UNREADABLE".to_owned()));
        };
        let request = DeployRequest {
            deployment_id: spec_fuzzer::id(round, &mut dice),
            namespace: String::new(),
            spec: Some(message),
        };
        match crm.client.clone().deploy(request).await {
            Ok(_) => (accepted, Ok(())),
            Err(status)
                if matches!(status.code(), Code::InvalidArgument | Code::FailedPrecondition) =>
            {
                (accepted, Err(reason_of(&status)))
            }
            Err(status) => panic!("round {round}: {status:?} for {spec}"),
        }
    };
    let mut outcomes =
        futures::stream::iter(batch.iter().copied().map(one)).buffer_unordered(AT_ONCE);
    while let Some((accepted, deployed)) = outcomes.next().await {
        count.accepted += usize::from(accepted);
        match deployed {
            Ok(()) => count.deployed += 1,
            Err(reason) => {
                assert!(!reason.is_empty());
                *count.rejected.entry(reason).or_default() += 1;
            }
        }
    }
}

/// Waits until each class has a status, and deletes all.
async fn collect_statuses_and_delete(ns: &TestNamespace, count: &mut Count) {
    let api = raw_classes(ns);
    let outcome = |class: &DynamicObject| {
        let status = class.data.get("status")?;
        let generation = status.get("observedGeneration")?.as_i64();
        let (phase, reason) = (status.get("phase")?.as_str()?, status.get("reason")?.as_str()?);
        let is_reported =
            generation == class.metadata.generation && !reason.is_empty() && phase != "Pending";
        is_reported.then(|| {
            if phase == "Degraded" {
                format!("{phase} ({reason})")
            } else {
                "in progress".to_owned()
            }
        })
    };
    let condition =
        |all: &BTreeMap<String, DynamicObject>| all.values().all(|class| outcome(class).is_some());
    wait_for_all(&api, "a status of each class", AVAILABLE_TIMEOUT, condition).await;
    for class in api.list(&ListParams::default()).await.unwrap() {
        if class.name_any() != BYSTANDER {
            *count.seen.entry(outcome(&class).unwrap()).or_default() += 1;
        }
    }
    let others = ListParams::default().labels(&format!("oaas.io/deployment-id!={BYSTANDER}"));
    api.delete_collection(&DeleteParams::default(), &others).await.unwrap();
    let condition = |all: &BTreeMap<String, DynamicObject>| all.len() == 1;
    wait_for_all(&api, "all others to be deleted", AVAILABLE_TIMEOUT, condition).await;
}

/// A class that can't be decoded must not break the watch on all others. It would affect every CRM
/// of a cluster, so this test has its own.
#[tokio::test]
async fn an_undecodable_class_does_not_hide_others() {
    with_simulated("test-deep", 1, async |cluster| {
        oprc_tests::crm::install(&cluster);
        in_namespace_of(cluster, async |ns: &TestNamespace| {
            with_bystander_and(ns, &Options::default(), async |_: &Crm| {
                let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
                let spec = format!(r#"{{"odgm_config": {{"collections": {deep}}}}}"#);
                post(ns, "deep", &spec).await.unwrap();
                create(ns, "later", &spec_of(&[hello("greet")])).await;
                wait_available(ns, "later").await;
            })
            .await;
            // A CRM that starts with it there observes the others as well.
            let _second = Crm::start(ns, &Options::user("second")).await;
        })
        .await;
    })
    .await;
}

/// Long suites: a sample with every test run, all rounds with `make prove`.
mod proof {
    use oprc_tests::proof;

    use super::*;

    #[tokio::test]
    async fn malformed_classes_do_not_affect_others() {
        watch_for_panics();
        let proof = proof::begin("malformed ClassRuntimes", 60, 10_000);
        let mut count = Count::default();
        with_simulated("test-malformed", 1, async |cluster| {
            oprc_tests::crm::install(&cluster);
            in_namespace_of(cluster, async |ns: &TestNamespace| {
                // Some classes request thousands of pods.
                set_quota(ns, "some-pods", &json!({"pods": "40"})).await;
                with_bystander_and(ns, &Options::default(), async |crm: &Crm| {
                    let rounds: Vec<_> = (0..proof.rounds).collect();
                    for batch in rounds.chunks(BATCH) {
                        send(ns, crm, batch, &mut count).await;
                        collect_statuses_and_delete(ns, &mut count).await;
                        get_ok(&format!("{}/health/live", crm.url)).await.unwrap();
                        let ready = format!("{}/health/ready", crm.url);
                        eventually("CRM to be ready", AVAILABLE_TIMEOUT, || async {
                            let ready = get_ok(&ready).await?;
                            if ready.contains(r#""stale":false"#) { Ok(()) } else { Err(ready) }
                        })
                        .await;
                        assert_eq!(*PANICS.lock().unwrap(), Vec::<String>::new());
                    }
                })
                .await;
            })
            .await;
        })
        .await;
        let Count { accepted, deployed, rejected, seen } = count;
        // Some specifications must be accepted for the test to be meaningful.
        assert!(
            accepted > proof.rounds / 10 && deployed > proof.rounds / 20,
            "{accepted} {deployed} {rejected:?} {seen:?}"
        );
        let seen: Vec<_> = seen.iter().map(|(phase, count)| format!("{count} {phase}")).collect();
        let seen = format!(
            "{accepted} accepted by the API server and {deployed} by Deploy: {}",
            seen.join(", ")
        );
        eprintln!("{seen}");
        proof.held(&seen);
    }
}
