//! The package manager without its API, on fake CRMs and an in-memory store.

use std::{sync::Arc, time::Duration};

use futures::{
    FutureExt as _,
    future::{join_all, select_all},
};
use oprc_cp_storage::{Store, Transaction};
use oprc_grpc::deployment::{ClassRuntime, NfrCompliance};
use oprc_models::{OClassDeployment, Policy, parse};
use oprc_rest::{Contact, Deployment, DeploymentCondition, UnitStatus};
use tokio::{task::JoinHandle, time::timeout};
use tonic::Code;

use crate::{
    crm_client::fake::Fake,
    error::Error,
    planner::Defaults,
    rollout::Deadlines,
    run::{Components, Options, drive},
    service::{Caller, DeploymentService, Precondition},
    state::schema::{deployment_key, unit_key},
};

const TEST_TIMEOUT: Duration = Duration::from_mins(2);

struct Manager {
    deployments: Arc<DeploymentService>,
    running: JoinHandle<()>,
}

impl Manager {
    async fn start(store: &Store, clusters: &[(&str, &Fake)]) -> Self {
        let lease = Arc::new(store.acquire_lease("pm", "a test").await.unwrap());
        let options = Options {
            clusters: clusters.iter().map(|(name, fake)| fake.config(name)).collect(),
            crm_deadline: Duration::from_secs(20),
            in_doubt: Duration::ZERO,
            deadlines: Deadlines::default(),
            defaults: Defaults::default(),
        };
        let Components { deployments, dispatcher } =
            Components::assemble(store, &lease, options).await.unwrap();
        let running = tokio::spawn(drive(Arc::clone(&deployments), dispatcher));
        Self { deployments, running }
    }

    /// Stops it at an arbitrary point.
    async fn crash(self) {
        self.running.abort();
        let _ = self.running.await;
    }

    async fn publish(&self) {
        let text = std::fs::read_to_string("../../examples/packages/hello.yaml").unwrap();
        self.deployments
            .registry
            .publish(&parse(&text, "hello.yaml").unwrap(), None)
            .await
            .unwrap();
    }

    /// Polls after each change until there is a result.
    async fn eventually<T>(&self, what: &str, poll: impl Fn() -> Option<T>) -> T {
        let mut stored = self.deployments.cache.changes();
        let mut observed: Vec<_> =
            self.deployments.clusters.clients().map(|it| it.changes()).collect();
        let seen = async {
            loop {
                if let Some(seen) = poll() {
                    return seen;
                }
                tokio::select! {
                    _ = stored.changed() => {}
                    _ = select_all(observed.iter_mut().map(|client| client.changed().boxed())) => {}
                }
            }
        };
        let Ok(seen) = timeout(TEST_TIMEOUT, seen).await else {
            panic!("never {what}: {:?}", self.deployments.get("greeting"));
        };
        seen
    }

    async fn until(&self, condition: DeploymentCondition) -> Deployment {
        let such = || {
            let found = self.deployments.get("greeting").ok();
            found.filter(|it| it.status.condition == condition)
        };
        self.eventually(&format!("{condition:?}"), such).await
    }

    async fn until_deleted(&self) {
        self.eventually("deleted", || self.deployments.get("greeting").is_err().then_some(()))
            .await;
    }

    async fn until_reached(&self, cluster: &str) {
        let client = self.deployments.clusters.client(cluster).unwrap();
        let reached = || (client.class_cache().contact() == Contact::Fresh).then_some(());
        self.eventually(&format!("{cluster} reached"), reached).await;
    }

    /// Waits for a state of the only class of a cluster, or of none.
    async fn until_class(&self, cluster: &str, such: impl Fn(Option<&ClassRuntime>) -> bool) {
        let client = self.deployments.clusters.client(cluster).unwrap();
        let such = || such(client.class_cache().classes().next().map(AsRef::as_ref)).then_some(());
        self.eventually(&format!("such on {cluster}"), such).await;
    }
}

fn greeting(clusters: &[&str], policy: Policy) -> OClassDeployment {
    OClassDeployment {
        key: "greeting".to_owned(),
        package: Some("hello".to_owned()),
        class: Some("Hello".to_owned()),
        target_clusters: clusters.iter().map(|name| (*name).to_owned()).collect(),
        policy: Some(policy),
        ..OClassDeployment::default()
    }
}

fn caller() -> Caller {
    Caller { name: Some("tester".to_owned()), correlation_id: "call-1".to_owned() }
}

fn at_revision(revision: &str) -> Precondition {
    Precondition::Revision(revision.to_owned())
}

fn count(fake: &Fake) -> usize {
    fake.state.lock().unwrap().classes.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_fails_like_the_change_and_stores_nothing() {
    let (store, one) = (Store::memory(), Fake::start().await);
    let manager = Manager::start(&store, &[("one", &one)]).await;
    manager.publish().await;
    // A plan has a warning for a cluster that is not connected yet.
    manager.until_reached("one").await;
    let desired = greeting(&["one"], Policy::BestEffort);
    let before = store.list("").await.unwrap().entries;
    let deployments = &manager.deployments;
    let plan = deployments.plan_upsert(&desired, &Precondition::Absent, &caller()).await.unwrap();
    assert_eq!((plan.deployment.as_str(), plan.units.len()), ("greeting", 1));
    assert_eq!(store.list("").await.unwrap().entries, before);
    let late = deployments.plan_upsert(&desired, &at_revision("r"), &caller()).await;
    assert!(matches!(late, Err(Error::Changed(_))), "{late:?}");
    let created = deployments.create(desired.clone(), &caller()).await.unwrap();
    assert_eq!(created.plan, plan);
    let again = deployments.plan_upsert(&desired, &Precondition::Absent, &caller()).await;
    assert!(matches!(again, Err(Error::Conflict { reason: "EXISTS", .. })), "{again:?}");
    let moved = OClassDeployment { namespace: Some("other".to_owned()), ..desired };
    let moved = deployments.plan_upsert(&moved, &at_revision(&created.revision), &caller()).await;
    assert!(matches!(moved, Err(Error::Conflict { reason: "NAMESPACE_FIXED", .. })), "{moved:?}");
    assert_eq!(deployments.history("greeting").await.unwrap().len(), 1);
    manager.crash().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn creates_updates_rolls_back_and_deletes_a_deployment() {
    let (store, one, two) = (Store::memory(), Fake::start().await, Fake::start().await);
    let manager = Manager::start(&store, &[("one", &one), ("two", &two)]).await;
    manager.publish().await;
    let both = greeting(&["one", "two"], Policy::BestEffort);
    let created = manager.deployments.create(both.clone(), &caller()).await.unwrap();
    let again = manager.deployments.create(both, &caller()).await.unwrap_err();
    assert!(matches!(again, Error::Conflict { reason: "EXISTS", .. }));
    let running = manager.until(DeploymentCondition::Running).await;
    assert_eq!((running.status.available, running.status.units_total), (2, 2));
    assert_eq!((count(&one), count(&two)), (1, 1));
    assert_eq!(one.state.lock().unwrap().correlation, "call-1");

    let less = greeting(&["two"], Policy::BestEffort);
    let stale =
        manager.deployments.upsert(less.clone(), &at_revision("0"), &caller()).await.unwrap_err();
    assert!(matches!(stale, Error::Changed(revision) if revision == created.revision));
    manager.deployments.upsert(less, &at_revision(&created.revision), &caller()).await.unwrap();
    manager.until_class("one", |class| class.is_none()).await;
    assert_eq!((count(&one), count(&two)), (0, 1));
    manager.until(DeploymentCondition::Running).await;
    manager.deployments.rollback("greeting", None, None, &caller()).await.unwrap();
    manager.until(DeploymentCondition::Running).await;
    let history = manager.deployments.history("greeting").await.unwrap();
    assert!(history[0].cause.starts_with("rollback to"), "{history:?}");
    assert_eq!(history.len(), 3);
    manager.deployments.delete("greeting", None, &caller()).await.unwrap();
    manager.until_deleted().await;
    assert_eq!((count(&one), count(&two)), (0, 0));
    assert!(store.list("revision/").await.unwrap().entries.is_empty());
    assert!(store.list("deployment").await.unwrap().entries.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn best_effort_is_partial_until_a_cluster_returns() {
    let (store, one, two) = (Store::memory(), Fake::start().await, Fake::start().await);
    let manager = Manager::start(&store, &[("one", &one), ("two", &two)]).await;
    manager.publish().await;
    two.stop();
    let both = greeting(&["one", "two"], Policy::BestEffort);
    manager.deployments.create(both, &caller()).await.unwrap();
    let partial = manager.until(DeploymentCondition::Partial).await;
    assert_eq!(partial.status.available, 1);
    assert!(partial.status.message.contains("two"), "{}", partial.status.message);
    two.resume();
    manager.until(DeploymentCondition::Running).await;
    assert_eq!(count(&two), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_or_nothing_rolls_back_across_crashes() {
    let (store, one, two) = (Store::memory(), Fake::start().await, Fake::start().await);
    let clusters = [("one", &one), ("two", &two)];
    let manager = Manager::start(&store, &clusters).await;
    manager.publish().await;
    two.state.lock().unwrap().fail_with = Some(Code::FailedPrecondition);
    let both = greeting(&["one", "two"], Policy::AllOrNothing);
    manager.deployments.create(both, &caller()).await.unwrap();
    manager.crash().await;
    let manager = Manager::start(&store, &clusters).await;
    let failed = manager.until(DeploymentCondition::RollingBack).await;
    assert!(failed.status.message.contains("rejected"), "{}", failed.status.message);
    manager.crash().await;
    two.state.lock().unwrap().fail_with = None;
    let manager = Manager::start(&store, &clusters).await;
    manager.until(DeploymentCondition::RolledBack).await;
    assert_eq!((count(&one), count(&two)), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn converges_after_a_lost_answer_and_a_foreign_change() {
    let (store, one) = (Store::memory(), Fake::start().await);
    let manager = Manager::start(&store, &[("one", &one)]).await;
    manager.publish().await;
    one.state.lock().unwrap().lose_answers = true;
    manager.deployments.create(greeting(&["one"], Policy::BestEffort), &caller()).await.unwrap();
    manager.until(DeploymentCondition::Running).await;
    {
        let mut state = one.state.lock().unwrap();
        assert_eq!(state.classes.values().next().unwrap().generation, 1);
        state.classes.clear();
    }
    // The stream reports nothing of this; the answer to a call does.
    let client = manager.deployments.clusters.client("one").unwrap();
    let id = client.class_cache().classes().next().unwrap().deployment_id.clone();
    let unit = manager.deployments.cache.unit(&("one".to_owned(), id.clone())).unwrap();
    client.deploy(&id, &unit.record, oprc_grpc::deployment::unit::ClassSpec::default()).await;
    manager.until_class("one", |class| class.is_some_and(|it| it.generation == 2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_store_is_rebuilt_by_adoption() {
    let one = Fake::start().await;
    let lost = Store::memory();
    let manager = Manager::start(&lost, &[("one", &one)]).await;
    manager.publish().await;
    manager.deployments.create(greeting(&["one"], Policy::BestEffort), &caller()).await.unwrap();
    manager.until(DeploymentCondition::Running).await;
    manager.crash().await;
    let sent = one.state.lock().unwrap().deploys;

    let manager = Manager::start(&Store::memory(), &[("one", &one)]).await;
    manager.until_reached("one").await;
    let orphans = manager.deployments.orphans();
    assert_eq!(orphans.len(), 1);
    let (id, caller) = (orphans[0].id.clone(), caller());
    manager.deployments.adopt("one", &id, "other", &caller).await.unwrap_err();
    manager.deployments.adopt("one", &id, "greeting", &caller).await.unwrap();
    manager.until(DeploymentCondition::Running).await;
    assert!(manager.deployments.orphans().is_empty());
    // It was adopted unchanged.
    assert_eq!(one.state.lock().unwrap().deploys, sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn adoption_retries_after_a_concurrent_change() {
    let (one, two) = (Fake::start().await, Fake::start().await);
    let clusters = [("one", &one), ("two", &two)];
    let manager = Manager::start(&Store::memory(), &clusters).await;
    manager.publish().await;
    let both = greeting(&["one", "two"], Policy::BestEffort);
    manager.deployments.create(both, &caller()).await.unwrap();
    manager.until(DeploymentCondition::Running).await;
    manager.crash().await;

    let store = Store::memory();
    let mut manager = Manager::start(&store, &clusters).await;
    for cluster in ["one", "two"] {
        manager.until_reached(cluster).await;
    }
    let orphans = manager.deployments.orphans();
    let (deployments, caller) = (&manager.deployments, caller());
    let adopt =
        |at: usize| deployments.adopt(&orphans[at].cluster, &orphans[at].id, "greeting", &caller);
    adopt(0).await.unwrap();
    // A concurrent write that the cache receives late.
    manager.running.abort();
    let _ = (&mut manager.running).await;
    let at = deployment_key("greeting");
    let entry = store.get(&at).await.unwrap().unwrap();
    store.commit(Transaction::new().put(at, entry.value)).await.unwrap();
    let late = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        deployments.cache.follow().await;
    };
    tokio::select! {
        adopted = adopt(1) => assert_eq!(adopted.unwrap().plan.units.len(), 2),
        () = late => unreachable!("it follows for as long as there is a store"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_deployments_of_one_package_all_succeed() {
    let (store, one) = (Store::memory(), Fake::start().await);
    let manager = Manager::start(&store, &[("one", &one)]).await;
    manager.publish().await;
    let (deployments, caller) = (&manager.deployments, caller());
    let created = (0..24).map(|number| {
        let key = format!("greeting-{number}");
        let desired = OClassDeployment { key, ..greeting(&["one"], Policy::BestEffort) };
        let caller = &caller;
        async move {
            // A request that waited too long for the lock must be retried.
            loop {
                match deployments.upsert(desired.clone(), &Precondition::None, caller).await {
                    Err(Error::Unavailable(_)) => {}
                    created => return created,
                }
            }
        }
    });
    for created in timeout(TEST_TIMEOUT, join_all(created)).await.unwrap() {
        created.unwrap();
    }
}

#[tokio::test]
async fn only_one_process_owns_a_store() {
    let store = Store::memory();
    let _first = store.acquire_lease("pm", "the first").await.unwrap();
    let second = store.acquire_lease("pm", "the second").await.unwrap_err();
    assert!(second.to_string().contains("the first"), "{second}");
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_packages_that_are_not_published() {
    let (store, one) = (Store::memory(), Fake::start().await);
    let manager = Manager::start(&store, &[("one", &one)]).await;
    let desired = greeting(&["one"], Policy::BestEffort);
    let text = std::fs::read_to_string("../../examples/packages/hello.yaml").unwrap();
    let documents = parse(&text, "hello.yaml").unwrap();
    manager.until_reached("one").await;
    let unknown = manager.deployments.plan(&desired, &[]).await.unwrap_err();
    assert!(matches!(unknown, Error::NotFound { .. }), "{unknown:?}");
    let plan = manager.deployments.plan(&desired, &documents).await.unwrap();
    assert_eq!((plan.package.as_str(), plan.units.len()), ("hello", 1));
    // Neither packages nor deployments have changed.
    assert_eq!((manager.deployments.registry.count(), count(&one)), ((0, 0), 0));
    manager.publish().await;
    assert_eq!(manager.deployments.plan(&desired, &[]).await.unwrap(), plan);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_other_deployments_reduce_capacity() {
    let (store, one) = (Store::memory(), Fake::start().await);
    let manager = Manager::start(&store, &[("one", &one)]).await;
    manager.until_reached("one").await;
    // The cluster has 8000m.
    let text = "name: hello\nversion: 1.0.0\n\
                functions: [{key: f, provision: {deployment: {image: f, requestsCpu: 5000m}}}]\n\
                classes: [{key: Hello, functions: [{name: f, function: f}]}]";
    let documents = parse(text, "hello.yaml").unwrap();
    manager.deployments.registry.publish(&documents, None).await.unwrap();
    let first = greeting(&["one"], Policy::BestEffort);
    let second = OClassDeployment { key: "other".to_owned(), ..first.clone() };
    let warnings =
        async |it: &OClassDeployment| manager.deployments.plan(it, &[]).await.unwrap().warnings;
    assert_eq!(warnings(&second).await, [""; 0]);
    manager.deployments.create(first.clone(), &caller()).await.unwrap();
    let found = warnings(&second).await;
    assert!(found[0].contains("5000m CPU and other deployments 5000m"), "{found:?}");
    assert_eq!(warnings(&first).await, [""; 0], "its own is no other's");
    manager.deployments.delete("greeting", None, &caller()).await.unwrap();
    assert_eq!(warnings(&second).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_a_deployment_whose_rollback_would_not_fit() {
    let (store, one) = (Store::memory(), Fake::start().await);
    let manager = Manager::start(&store, &[("one", &one)]).await;
    manager.until_reached("one").await;
    let variables = (0..17).map(|number| format!("BIG_{number}: {}", "x".repeat(30 << 10)));
    let text = format!(
        "name: hello\nversion: 1.0.0\n\
         functions: [{{key: f, provision: {{deployment: {{image: f, env: {{{}}}}}}}}}]\n\
         classes: [{{key: Hello, functions: [{{name: f, function: f}}]}}]",
        variables.collect::<Vec<_>>().join(", "),
    );
    let documents = parse(&text, "hello.yaml").unwrap();
    manager.deployments.registry.publish(&documents, None).await.unwrap();
    // One plan takes less than 1 MiB; with that of the previous revision it is more.
    let all = greeting(&["one"], Policy::AllOrNothing);
    let rejected = manager.deployments.create(all.clone(), &caller()).await.unwrap_err();
    let why = rejected.to_string();
    assert!(matches!(rejected, Error::Parameter { field: "deployment", .. }), "{rejected:?}");
    assert!(why.contains("split the deployment"), "{why}");
    // A deployment without rollback can be updated.
    let stays = OClassDeployment { rollback_on_failure: Some(false), ..all };
    manager.deployments.create(stays.clone(), &caller()).await.unwrap();
    manager.until(DeploymentCondition::Running).await;
    let effort = greeting(&["one"], Policy::BestEffort);
    for desired in [effort, stays] {
        manager.deployments.upsert(desired, &Precondition::None, &caller()).await.unwrap();
        manager.until(DeploymentCondition::Running).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ignores_a_copy_in_another_namespace() {
    let (store, one) = (Store::memory(), Fake::start().await);
    let copy = ClassRuntime {
        deployment_id: "greeting.Hello..one".to_owned(),
        namespace: "a-copy".to_owned(),
        uid: "copy".to_owned(),
        generation: 1,
        ..ClassRuntime::default()
    };
    one.state.lock().unwrap().classes.insert("copy".to_owned(), copy);
    let manager = Manager::start(&store, &[("one", &one)]).await;
    manager.publish().await;
    manager.deployments.create(greeting(&["one"], Policy::BestEffort), &caller()).await.unwrap();
    let running = manager.until(DeploymentCondition::Running).await;
    assert_eq!(running.status.units[0].namespace, "default");
    assert_eq!(one.state.lock().unwrap().deploys, 1);
}

/// A package manager that has lost its store, and the id of the only unit on its cluster.
async fn with_orphan(store: &Store, one: &Fake) -> (Manager, String) {
    let manager = Manager::start(&Store::memory(), &[("one", one)]).await;
    manager.publish().await;
    manager.deployments.create(greeting(&["one"], Policy::BestEffort), &caller()).await.unwrap();
    manager.until(DeploymentCondition::Running).await;
    manager.crash().await;
    let manager = Manager::start(store, &[("one", one)]).await;
    manager.until_reached("one").await;
    let id = manager.deployments.orphans()[0].id.clone();
    (manager, id)
}

#[tokio::test(flavor = "multi_thread")]
async fn deletes_an_orphan_unless_its_cluster_rejects_that() {
    let (store, one) = (Store::memory(), Fake::start().await);
    let (manager, id) = with_orphan(&store, &one).await;
    one.state.lock().unwrap().fail_with = Some(Code::FailedPrecondition);
    let rejected = manager.deployments.delete_orphan("one", &id, &caller()).await.unwrap_err();
    assert!(matches!(rejected, Error::Conflict { reason: "REJECTED", .. }), "{rejected:?}");
    assert_eq!(manager.deployments.orphans().len(), 1);
    one.state.lock().unwrap().fail_with = None;
    manager.deployments.delete_orphan("one", &id, &caller()).await.unwrap();
    manager.until_class("one", |class| class.is_none()).await;
    let key = ("one".to_owned(), id);
    manager
        .eventually("forgotten", || manager.deployments.cache.unit(&key).is_none().then_some(()))
        .await;
    assert_eq!(count(&one), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orphan_taken_over_meanwhile_is_not_deleted() {
    let (store, one) = (Store::memory(), Fake::start().await);
    let (mut manager, id) = with_orphan(&store, &one).await;
    // It is stored a moment before, and not read yet.
    manager.running.abort();
    let _ = (&mut manager.running).await;
    let taken_over = Transaction::new().put(unit_key(&("one".to_owned(), id.clone())), "{}");
    store.commit(taken_over).await.unwrap();
    let rejected = manager.deployments.delete_orphan("one", &id, &caller()).await.unwrap_err();
    assert!(matches!(rejected, Error::Conflict { reason: "NO_ORPHAN", .. }), "{rejected:?}");
    assert_eq!(count(&one), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orphan_being_deleted_can_be_deployed_again() {
    let (store, one) = (Store::memory(), Fake::start().await);
    let (manager, id) = with_orphan(&store, &one).await;
    manager.publish().await;
    let client = manager.deployments.clusters.client("one").unwrap();
    one.stop();
    manager.eventually("away", || (!client.class_cache().is_fresh()).then_some(())).await;
    // It is deleted when the cluster returns, unless a deployment has taken it over by then.
    manager.deployments.delete_orphan("one", &id, &caller()).await.unwrap();
    let again = manager.deployments.delete_orphan("one", &id, &caller()).await.unwrap_err();
    assert!(matches!(again, Error::Conflict { reason: "DELETING", .. }), "{again:?}");
    manager.deployments.create(greeting(&["one"], Policy::BestEffort), &caller()).await.unwrap();
    one.resume();
    let running = manager.until(DeploymentCondition::Running).await;
    assert_eq!(running.status.units[0].namespace, "default");
    assert_eq!(one.state.lock().unwrap().classes.values().next().unwrap().uid, "1");
}

#[tokio::test]
async fn documents_have_the_latest_measurements_although_the_stream_is_silent() {
    let fake = Fake::start().await;
    let manager = Manager::start(&Store::memory(), &[("east", &fake)]).await;
    manager.publish().await;
    manager.deployments.create(greeting(&["east"], Policy::BestEffort), &caller()).await.unwrap();
    manager.until(DeploymentCondition::Running).await;
    let id = fake.state.lock().unwrap().classes.keys().next().unwrap().clone();
    let measure = |rate: f64, at: &str| {
        let mut state = fake.state.lock().unwrap();
        let status = state.classes.get_mut(&id).unwrap().status.as_mut().unwrap();
        status.functions[0].nfr_compliance = Some(NfrCompliance {
            throughput_actual: Some(rate),
            observed_at: at.to_owned(),
            ..NfrCompliance::default()
        });
    };
    let rate = |unit: &UnitStatus| unit.functions[0].nfr_compliance.as_ref()?.throughput_actual;
    measure(20.0, "2026-11-17T12:00:00Z");
    let class = manager.deployments.class_runtime(&id, None).await.unwrap();
    assert_eq!(rate(&class.unit), Some(20.0));
    measure(30.0, "2026-11-17T12:01:00Z");
    manager.deployments.refresh_measurements("greeting").await;
    let status = manager.deployments.status("greeting").unwrap();
    assert_eq!(rate(&status.units[0]), Some(30.0));
    // Without contact the last measurements stay.
    fake.stop();
    let class = manager.deployments.class_runtime(&id, Some("east")).await.unwrap();
    assert_eq!(rate(&class.unit), Some(30.0));
    manager.crash().await;
}
