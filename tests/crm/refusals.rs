//! Classes that can't be: why stands in the status or in the answer, and nobody else notices.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Pod, ResourceQuota, Service};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams},
    runtime::{
        wait::await_condition,
        watcher::{self, Event},
    },
};
use oprc_crm::crd::{ClassRuntime, ClassRuntimeStatus, Phase};
use oprc_sandbox::within;
use oprc_tests::{
    Place,
    class::{
        AVAILABLE, available, classes, degraded, deploy, everything, gone, hello, of, until, url,
        with_odgm,
    },
    crm::{Crm, Options},
    in_namespace, in_namespace_of,
    objects::{READY, get_from_pod},
    with_simulated,
};
use serde_json::{Value, json};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// A class beside those that are refused.
const NEIGHBOUR: &str = "neighbour";

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
async fn beside(place: &Place, options: &Options, test: impl AsyncFnOnce(&Crm)) {
    let crm = Crm::start(place, options).await;
    let mut neighbour = hello("greet");
    // A machine that is busy is no reason to be less Available.
    neighbour["health_check"]["failure_threshold"] = json!(100);
    neighbour["health_check"]["timeout_seconds"] = json!(30);
    deploy(&crm.client, NEIGHBOUR, &of(&[neighbour])).await.unwrap();
    available(place, NEIGHBOUR).await;
    let before = see_neighbour(place).await;
    test(&crm).await;
    assert_eq!(see_neighbour(place).await, before);
}

async fn beside_a_neighbour(test: impl AsyncFnOnce(&Place, &Crm)) {
    in_namespace(async |place: &Place| {
        beside(place, &Options::default(), async |crm: &Crm| test(place, crm).await).await;
    })
    .await;
}

/// A class as it is, whether it can be read or not.
fn anyhow(place: &Place) -> Api<DynamicObject> {
    let kind = ApiResource::erase::<ClassRuntime>(&());
    Api::namespaced_with(place.client.clone(), &place.namespace, &kind)
}

/// Makes a class as `kubectl create` does.
async fn create(place: &Place, name: &str, spec: &Value) {
    let kind = ApiResource::erase::<ClassRuntime>(&());
    let class = DynamicObject::new(name, &kind).data(json!({"spec": spec}));
    anyhow(place).create(&PostParams::default(), &class).await.unwrap();
}

/// Watches everything of a kind until it is such.
pub(crate) async fn until_all<K>(
    api: &Api<K>,
    what: &str,
    limit: Duration,
    such: impl Fn(&BTreeMap<String, K>) -> bool,
) where
    K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let mut all = BTreeMap::new();
    let watching = async {
        let mut events = std::pin::pin!(watcher::watcher(api.clone(), watcher::Config::default()));
        let mut complete = false;
        while let Some(event) = events.try_next().await? {
            match event {
                Event::Init => all.clear(),
                Event::InitApply(object) | Event::Apply(object) => {
                    all.insert(object.name_any(), object);
                }
                Event::Delete(object) => drop(all.remove(&object.name_any())),
                Event::InitDone => complete = true,
            }
            if complete && such(&all) {
                break;
            }
        }
        Ok::<_, watcher::Error>(())
    };
    if let Err(error) = within(what, limit, watching).await {
        panic!("{error}: {all:#?}");
    }
}

fn reason_of(status: &Status) -> String {
    let details = status.get_error_details();
    let info = details.error_info().unwrap_or_else(|| panic!("no details: {status:?}"));
    assert_eq!(info.domain, "oaas.io");
    info.reason.clone()
}

fn function(change: impl FnOnce(&mut Value)) -> Value {
    let mut function = hello("greet");
    change(&mut function);
    function
}

#[tokio::test]
async fn images_that_cannot_be_had() {
    beside_a_neighbour(async |place: &Place, crm: &Crm| {
        let absent = function(|it| it["image"] = json!("oprc.local/nobody-has-this:1"));
        let unreachable = function(|it| {
            it["image"] = json!("127.0.0.1:1/nobody/answers-here:1");
            it["provision"]["image_pull_policy"] = json!("IfNotPresent");
        });
        deploy(&crm.client, "absent", &of(&[absent])).await.unwrap();
        deploy(&crm.client, "unreachable", &of(&[unreachable])).await.unwrap();
        for name in ["absent", "unreachable"] {
            let status = degraded(place, name, "ImagePullFailed").await;
            assert!(status.message.unwrap().starts_with("greet: pod "));
            assert_eq!(status.functions[0].reason.as_deref(), Some("ImagePullFailed"));
            deploy(&crm.client, name, &of(&[hello("greet")])).await.unwrap();
        }
        for name in ["absent", "unreachable"] {
            available(place, name).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_program_that_ends_again_and_again() {
    beside_a_neighbour(async |place: &Place, crm: &Crm| {
        let nonsense = function(|it| it["provision"]["args"] = json!(["nonsense"]));
        deploy(&crm.client, "crashing", &of(&[nonsense])).await.unwrap();
        let status = degraded(place, "crashing", "CrashLoop").await;
        assert!(status.message.unwrap().ends_with("with exit code 1"));
        deploy(&crm.client, "crashing", &of(&[hello("greet")])).await.unwrap();
        available(place, "crashing").await;
    })
    .await;
}

async fn set_quota(place: &Place, name: &str, hard: &Value) {
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

#[tokio::test]
async fn quotas_for_pods_and_for_objects() {
    beside_a_neighbour(async |place: &Place, crm: &Crm| {
        // The neighbour has one of each.
        set_quota(place, "few-pods", &json!({"pods": "1"})).await;
        deploy(&crm.client, "without-pods", &of(&[hello("greet")])).await.unwrap();
        let status = degraded(place, "without-pods", "QuotaExceeded").await;
        assert!(status.message.unwrap().contains("few-pods"));

        set_quota(place, "few-deployments", &json!({"count/deployments.apps": "2"})).await;
        deploy(&crm.client, "without-objects", &of(&[hello("greet")])).await.unwrap();
        let status = degraded(place, "without-objects", "QuotaExceeded").await;
        let message = status.message.unwrap();
        assert!(
            message.starts_with("Deployment without-objects")
                && message.contains("few-deployments"),
            "{message}"
        );

        let api: Api<ResourceQuota> = Api::namespaced(place.client.clone(), &place.namespace);
        for name in ["few-pods", "few-deployments"] {
            api.delete(name, &DeleteParams::default()).await.unwrap();
        }
        for name in ["without-pods", "without-objects"] {
            assert_eq!(available(place, name).await.observed_generation, Some(1));
        }
    })
    .await;
}

#[tokio::test]
async fn a_disk_of_a_storage_class_that_is_not_there() {
    beside_a_neighbour(async |place: &Place, crm: &Crm| {
        let mut spec = with_odgm(&[hello("greet")]);
        spec["odgm_config"]["collections"][0]["persistence_mode"] = json!("persistent");
        spec["odgm_config"]["storage"] = json!({"class": "nobody-has-this"});
        spec["data_retention"] = json!({"on_delete": "delete"});
        spec["rollout"] = json!({"progress_deadline_seconds": 3});
        deploy(&crm.client, "diskless", &spec).await.unwrap();
        let status = degraded(place, "diskless", "VolumeNotBound").await;
        assert!(status.message.unwrap().contains("storage class nobody-has-this"));
        assert_eq!(status.odgm.unwrap().reason.as_deref(), Some("VolumeNotBound"));
        oprc_tests::class::delete(&crm.client, "diskless").await.unwrap();
        gone(place, "diskless").await;
    })
    .await;
}

#[tokio::test]
async fn templates_that_are_not_there_or_too_slow() {
    in_namespace(async |place: &Place| {
        let floor = "OPRC_CRM_TEMPLATES_FLOORS_K8S_DEPLOYMENT_MS";
        let options = Options::default().with(floor, "5");
        beside(place, &options, async |crm: &Crm| {
            let before = everything(place).await;
            let mut too_fast = of(&[hello("greet")]);
            too_fast["constraints"] = json!({"hard_latency_ms": 1});
            let mut unheard_of = of(&[hello("greet")]);
            unheard_of["selected_template"] = json!("unheard-of");
            let mut too_slow = of(&[hello("greet")]);
            too_slow["selected_template"] = json!("k8s_deployment");
            too_slow["constraints"] = json!({"hard_latency_ms": 1});
            for (name, spec, in_answer, in_status, says) in [
                ("too-fast", &too_fast, "NO_SUITABLE_TEMPLATE", "NoSuitableTemplate", "5 ms"),
                (
                    "unheard-of",
                    &unheard_of,
                    "UNKNOWN_TEMPLATE",
                    "UnknownTemplate",
                    "k8s_deployment",
                ),
                ("too-slow", &too_slow, "TEMPLATE_REJECTED", "TemplateRejected", "5 ms"),
            ] {
                let refused = deploy(&crm.client, name, spec).await.unwrap_err();
                assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
                assert_eq!(reason_of(&refused), in_answer);
                let details = refused.get_error_details();
                let violations = &details.precondition_failure().unwrap().violations;
                assert_eq!(violations[0].r#type, in_status);
                assert!(refused.message().contains(says), "{refused:?}");
                assert!(classes(place).get_opt(name).await.unwrap().is_none());

                create(place, name, spec).await;
                let status = degraded(place, name, in_status).await;
                assert!(status.message.unwrap().contains(says));
                assert!(
                    !status
                        .conditions
                        .iter()
                        .any(|it| it.type_ == "Available" && it.status == "True")
                );
            }
            assert_eq!(everything(place).await, before);
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn an_update_that_never_gets_ready_is_taken_back() {
    beside_a_neighbour(async |place: &Place, crm: &Crm| {
        let spec = |path: &str, deadline: i32, round: &str| {
            let function = function(|it| {
                it["health_check"]["path"] = json!(path);
                it["provision"]["env"] = json!([
                    {"name": "DRAIN_MS", "value": "0"}, {"name": "ROUND", "value": round},
                ]);
            });
            let mut spec = of(&[function]);
            spec["rollout"] = json!({"progress_deadline_seconds": deadline, "rollback": true});
            spec
        };
        let pods: Api<Pod> = Api::namespaced(place.client.clone(), &place.namespace);
        let own = ListParams::default().labels("oaas.io/owner=shop");
        deploy(&crm.client, "shop", &spec("/healthz", 60, "first")).await.unwrap();
        let first = available(place, "shop").await;
        let before = pods.list(&own).await.unwrap().items;
        assert_eq!(before.len(), 1);

        deploy(&crm.client, "shop", &spec("/?fail=500", 5, "second")).await.unwrap();
        let taken_back = |status: &ClassRuntimeStatus| {
            status.reason.as_deref() == Some("RolledBack") && status.holds("Available")
        };
        let status = until(place, "shop", "shop to be taken back", AVAILABLE, taken_back).await;
        assert_eq!((status.phase, status.rolled_back), (Phase::Degraded, Some(2)));
        assert_eq!(status.last_available.as_ref().unwrap().generation, 1);
        assert!(status.holds("Degraded"));
        assert_eq!(classes(place).get("shop").await.unwrap().metadata.generation, Some(2));
        // The same pod as ever answers, at the same address.
        let pod = pods.get(&before[0].name_any()).await.unwrap();
        assert_eq!((pod.uid(), &pod.metadata.deletion_timestamp), (before[0].uid(), &None));
        assert_eq!(url(&status, "greet"), url(&first, "greet"));
        let said = get_from_pod(place, &format!("{}/?name=again", url(&status, "greet"))).await;
        assert!(said.contains("Hello, again!") && said.contains(&before[0].name_any()), "{said}");

        deploy(&crm.client, "shop", &spec("/healthz", 60, "third")).await.unwrap();
        let status = available(place, "shop").await;
        assert_eq!((status.rolled_back, status.last_available.unwrap().generation), (None, 3));
        assert!(!status.conditions.iter().any(|it| it.type_ == "Degraded" && it.status == "True"));
    })
    .await;
}

/// The definition can't say everything: what it lets through is named by CRM.
#[tokio::test]
async fn a_specification_that_only_the_api_server_can_read() {
    beside_a_neighbour(async |place: &Place, crm: &Crm| {
        let mut spec = with_odgm(&[hello("greet")]);
        spec["odgm_config"]["collections"] = json!([42]);
        create(place, "unreadable", &spec).await;
        let refused = |class: Option<&DynamicObject>| {
            let status = class.and_then(|class| class.data.get("status"));
            status.is_some_and(|status| status["phase"] == "Degraded")
        };
        let waiting = await_condition(anyhow(place), "unreadable", refused);
        let class = within("unreadable to be Degraded", READY, waiting).await.unwrap().unwrap();
        let status = &class.data["status"];
        assert_eq!(status["reason"], "InvalidSpec");
        let message = status["message"].as_str().unwrap();
        assert!(message.contains("odgm_config.collections[0]"), "{message}");
        oprc_tests::class::delete(&crm.client, "unreadable").await.unwrap();
        let absent = |class: Option<&DynamicObject>| class.is_none();
        let waiting = await_condition(anyhow(place), "unreadable", absent);
        within("unreadable to be gone", READY, waiting).await.unwrap();
    })
    .await;
}

/// What is wrong is quoted in the answer, which travels in headers: those have bounds, and a client
/// that gets too much of them drops the connection and every other call on it.
#[tokio::test]
async fn a_refusal_of_something_long_is_an_answer() {
    beside_a_neighbour(async |_: &Place, crm: &Crm| {
        for word in ["a".repeat(60_000), "é".repeat(10_000)] {
            let mut unheard_of = of(&[hello("greet")]);
            unheard_of["selected_template"] = json!(word);
            let refused = deploy(&crm.client, "unheard-of", &unheard_of).await.unwrap_err();
            assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
            assert_eq!(reason_of(&refused), "UNKNOWN_TEMPLATE");
            let mut wrong = of(&[hello("greet")]);
            wrong["addons"] = json!([word]);
            let refused = deploy(&crm.client, "wrong", &wrong).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
            assert_eq!(reason_of(&refused), "INVALID_SPEC");
        }
    })
    .await;
}

/// One class that can't be read at all, not even as JSON, must not make CRM blind to all others. It
/// would do so to every CRM of a cluster, so this has one of its own.
#[tokio::test]
async fn a_specification_that_is_too_deep() {
    with_simulated("test-deep", 1, async |cluster| {
        oprc_tests::crm::install(&cluster);
        in_namespace_of(cluster, async |place: &Place| {
            beside(place, &Options::default(), async |_: &Crm| {
                let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
                let spec = format!(r#"{{"odgm_config": {{"collections": {deep}}}}}"#);
                let _ = proof::post(place, "deep", &spec).await;
                create(place, "later", &of(&[hello("greet")])).await;
                available(place, "later").await;
            })
            .await;
            // One that begins with it there sees the others as well.
            let _second = Crm::start(place, &Options::user("second")).await;
        })
        .await;
    })
    .await;
}

/// Long suites: a sample with every test run, all rounds with `make prove`.
mod proof {
    use std::{
        panic,
        sync::{Mutex, Once},
    };

    use hyper::Request;
    use oprc_grpc::deployment::{DeployRequest, unit::ClassSpec};
    use oprc_tests::{http::get_ok, proof};

    use super::*;
    use crate::malformed::{self, Dice};

    /// How many are there at once.
    const BATCH: usize = 100;
    /// How many requests are under way at once.
    const AT_ONCE: usize = 8;

    /// Panics of this process that aren't a test's own.
    static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

    /// Remembers panics of CRM and of what it is made of: those of a test are in `tests/`.
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

    /// Makes a class of any text; what is refused is told by its status.
    pub(super) async fn post(place: &Place, name: &str, spec: &str) -> Result<(), u16> {
        let path = format!("/apis/oaas.io/v1alpha1/namespaces/{}/classruntimes", place.namespace);
        let body = format!(
            r#"{{"apiVersion": "oaas.io/v1alpha1", "kind": "ClassRuntime", "metadata": {{"name": "{name}"}}, "spec": {spec}}}"#
        );
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(body.into_bytes()).unwrap();
        match place.client.request_text(request).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) => Err(status.code),
            Err(error) => panic!("{spec}: {error}"),
        }
    }

    #[derive(Default)]
    struct Count {
        taken: usize,
        deployed: usize,
        seen: BTreeMap<String, usize>,
    }

    #[tokio::test]
    async fn malformed_classes_harm_nobody() {
        watch_for_panics();
        let proof = proof::begin("malformed classes", 60, 10_000);
        let mut count = Count::default();
        with_simulated("test-malformed", 1, async |cluster| {
            oprc_tests::crm::install(&cluster);
            in_namespace_of(cluster, async |place: &Place| {
                // Nobody needs the thousands of pods that some ask for.
                set_quota(place, "some-pods", &json!({"pods": "40"})).await;
                beside(place, &Options::default(), async |crm: &Crm| {
                    let rounds: Vec<_> = (0..proof.rounds).collect();
                    for batch in rounds.chunks(BATCH) {
                        send(place, crm, batch, &mut count).await;
                        settle(place, &mut count).await;
                        get_ok(&format!("{}/health/live", crm.url)).await.unwrap();
                        let ready = get_ok(&format!("{}/health/ready", crm.url)).await.unwrap();
                        assert!(ready.contains(r#""stale":false"#), "{ready}");
                        assert_eq!(*PANICS.lock().unwrap(), Vec::<String>::new());
                    }
                })
                .await;
            })
            .await;
        })
        .await;
        let Count { taken, deployed, seen } = count;
        // A suite that is refused altogether would prove nothing.
        assert!(
            taken > proof.rounds / 10 && deployed > proof.rounds / 20,
            "{taken} {deployed} {seen:?}"
        );
        let seen: Vec<_> = seen.iter().map(|(phase, count)| format!("{count} {phase}")).collect();
        let seen = format!(
            "{taken} taken by the API server and {deployed} by Deploy: {}",
            seen.join(", ")
        );
        eprintln!("{seen}");
        proof.held(&seen);
    }

    async fn send(place: &Place, crm: &Crm, batch: &[usize], count: &mut Count) {
        let one = async |round: usize| {
            let mut dice = Dice::of_round(round);
            let spec = malformed::specification(&mut dice);
            let name = malformed::name(round, &mut dice);
            let taken = match post(place, &name, &spec).await {
                Ok(()) => true,
                Err(400..500) => false,
                Err(code) => panic!("round {round}: {code} by the API server for {spec}"),
            };
            let Ok(message) = serde_json::from_str::<ClassSpec>(&spec) else {
                return (taken, false);
            };
            let request = DeployRequest {
                deployment_id: malformed::id(round, &mut dice),
                namespace: String::new(),
                spec: Some(message),
            };
            match crm.client.clone().deploy(request).await {
                Ok(_) => (taken, true),
                Err(status)
                    if matches!(
                        status.code(),
                        Code::InvalidArgument | Code::FailedPrecondition
                    ) =>
                {
                    assert!(!reason_of(&status).is_empty());
                    (taken, false)
                }
                Err(status) => panic!("round {round}: {status:?} for {spec}"),
            }
        };
        let mut outcomes =
            futures::stream::iter(batch.iter().copied().map(one)).buffer_unordered(AT_ONCE);
        while let Some((taken, deployed)) = outcomes.next().await {
            count.taken += usize::from(taken);
            count.deployed += usize::from(deployed);
        }
    }

    /// Waits until something is said of each, and lets all go.
    async fn settle(place: &Place, count: &mut Count) {
        let api = anyhow(place);
        let said = |class: &DynamicObject| {
            let status = class.data.get("status")?;
            let generation = status.get("observedGeneration")?.as_i64();
            let (phase, reason) = (status.get("phase")?.as_str()?, status.get("reason")?.as_str()?);
            let told =
                generation == class.metadata.generation && !reason.is_empty() && phase != "Pending";
            told.then(|| {
                if phase == "Degraded" {
                    format!("{phase} by {reason}")
                } else {
                    "on their way".to_owned()
                }
            })
        };
        let such =
            |all: &BTreeMap<String, DynamicObject>| all.values().all(|class| said(class).is_some());
        until_all(&api, "something to be said of each", AVAILABLE, such).await;
        for class in api.list(&ListParams::default()).await.unwrap() {
            if class.name_any() != NEIGHBOUR {
                *count.seen.entry(said(&class).unwrap()).or_default() += 1;
            }
        }
        let others = ListParams::default().labels(&format!("oaas.io/deployment-id!={NEIGHBOUR}"));
        api.delete_collection(&DeleteParams::default(), &others).await.unwrap();
        let such = |all: &BTreeMap<String, DynamicObject>| all.len() == 1;
        until_all(&api, "all others to be gone", AVAILABLE, such).await;
    }
}
