use std::{collections::BTreeMap, sync::Arc, time::Duration};

use oprc_grpc::{client::Token, deployment::unit::ClassSpec};
use oprc_rest::{Contact, Health};
use tokio::task::JoinHandle;
use tonic::Code;

use super::{ClassCache, Clusters, CrmClient, fake::Fake};
use crate::{
    clock,
    error::Error,
    rollout::{Acknowledged, CallOutcome, UnitRecord},
};

const DEADLINE: Duration = Duration::from_secs(20);
const TEST_TIMEOUT: Duration = Duration::from_mins(2);

fn unit(correlation_id: &str) -> UnitRecord {
    UnitRecord {
        revision: "r".to_owned(),
        desired: true,
        correlation_id: correlation_id.to_owned(),
        ..UnitRecord::default()
    }
}

async fn until(what: &str, client: &CrmClient, holds: impl Fn(&ClassCache) -> bool) {
    let mut changes = client.changes();
    let waiting = async {
        while !holds(&client.class_cache()) {
            changes.changed().await.unwrap();
        }
    };
    let waited = tokio::time::timeout(TEST_TIMEOUT, waiting).await;
    assert!(waited.is_ok(), "never: {what}");
}

/// The clusters of one fake CRM, once their cache is complete.
async fn connect(fake: &Fake) -> (Arc<Clusters>, Arc<CrmClient>, JoinHandle<()>) {
    let clusters = Arc::new(Clusters::new([fake.config("one")], DEADLINE));
    let running = tokio::spawn({
        let clusters = Arc::clone(&clusters);
        async move { clusters.run().await }
    });
    let client = Arc::clone(clusters.client("one").unwrap());
    until("fresh", &client, ClassCache::is_fresh).await;
    (clusters, client, running)
}

#[tokio::test]
async fn reports_the_outcome_of_calls() {
    let fake = Fake::start().await;
    let mut config = fake.config("one");
    config.token = Some(Token::Value("canary".to_owned()));
    let client = CrmClient::new(config, DEADLINE);
    assert_eq!(client.delete("unit", &unit("call-1")).await, CallOutcome::NotFound);
    let accepted = client.deploy("unit", &unit("call-2"), ClassSpec::default()).await;
    let acknowledged = Acknowledged {
        revision: "r".to_owned(),
        uid: "1".to_owned(),
        generation: 1,
        namespace: "default".to_owned(),
    };
    assert_eq!(accepted, CallOutcome::Accepted(acknowledged));
    {
        let state = fake.state.lock().unwrap();
        assert_eq!((state.correlation.as_str(), state.token.as_str()), ("call-2", "Bearer canary"));
    }
    fake.state.lock().unwrap().fail_with = Some(Code::FailedPrecondition);
    let rejected = client.deploy("unit", &unit("call-3"), ClassSpec::default()).await;
    assert_eq!(rejected, CallOutcome::Rejected("scripted failure".to_owned()));
    fake.state.lock().unwrap().fail_with = Some(Code::Unavailable);
    let mut message = String::new();
    for _ in 0..20 {
        let failed = client.deploy("unit", &unit("call-4"), ClassSpec::default()).await;
        let CallOutcome::Failed(why) = failed else { panic!("{failed:?}") };
        message = why;
        if message.contains("does not answer") {
            break;
        }
    }
    assert!(message.contains("does not answer"), "{message}");
}

/// Whether the breaker stays closed over many calls that fail so.
async fn stays_closed(fake: &Fake, code: Code, reason: &'static str) -> bool {
    let client = CrmClient::new(fake.config("one"), DEADLINE);
    {
        let mut state = fake.state.lock().unwrap();
        (state.fail_with, state.reason) = (Some(code), Some(reason));
    }
    let mut closed = true;
    for _ in 0..20 {
        let failed = client.deploy("unit", &unit("call"), ClassSpec::default()).await;
        let CallOutcome::Failed(why) = failed else { panic!("{failed:?}") };
        closed &= why.contains("scripted failure");
    }
    closed
}

#[tokio::test]
async fn failures_of_one_class_leave_the_breaker_closed() {
    let fake = Fake::start().await;
    for reason in ["DELETING", "CONFLICT"] {
        assert!(stays_closed(&fake, Code::Unavailable, reason).await, "{reason}");
    }
    for reason in ["API_SERVER_UNAVAILABLE", "CRD_MISSING", "NOT_READY"] {
        assert!(!stays_closed(&fake, Code::Unavailable, reason).await, "{reason}");
    }
}

#[tokio::test]
async fn denied_and_throttled_calls_leave_the_breaker_closed() {
    let fake = Fake::start().await;
    for (code, reason) in [
        (Code::Unavailable, "API_SERVER_UNAUTHENTICATED"),
        (Code::Unauthenticated, "API_SERVER_UNAUTHENTICATED"),
        (Code::Unavailable, "API_SERVER_THROTTLED"),
        (Code::ResourceExhausted, "API_SERVER_THROTTLED"),
    ] {
        assert!(stays_closed(&fake, code, reason).await, "{code:?} {reason}");
    }
}

#[tokio::test]
async fn reconnects_to_a_cluster_that_was_unreachable() {
    let fake = Fake::start().await;
    let health = |clusters: &Clusters| clusters.health().next().map(|(_, health, _)| health);
    let unconnected = Clusters::new([fake.config("one")], DEADLINE);
    assert_eq!(health(&unconnected), Some(Health::Unreachable));
    let (clusters, client, running) = connect(&fake).await;
    let facts = clusters.facts().remove("one").unwrap();
    assert!(facts.reachable && facts.platform.unwrap().features.odgm);
    assert_eq!(facts.capacity.unwrap().cpu_millis, 8000);
    assert_eq!(health(&clusters), Some(Health::Healthy));
    client.deploy("unit", &unit("call"), ClassSpec::default()).await;
    fake.stop();
    until("lost", &client, |it| it.contact() == Contact::Stale).await;
    assert_eq!(health(&clusters), Some(Health::Unreachable));
    // Classes stay visible, marked as stale.
    assert_eq!(client.class_cache().classes().count(), 1);
    fake.state.lock().unwrap().classes.clear();
    fake.resume();
    until("back", &client, ClassCache::is_fresh).await;
    until("a new snapshot", &client, |it| it.classes().count() == 0).await;
    running.abort();
}

#[tokio::test]
async fn follows_the_nodes_of_a_cluster_without_asking() {
    let fake = Fake::start().await;
    fake.state.lock().unwrap().sends_info = true;
    let (clusters, client, running) = connect(&fake).await;
    let asked = fake.state.lock().unwrap().info_calls;
    fake.set_ready_nodes(0);
    let ready = |cache: &ClassCache| cache.info.as_ref().map(|info| info.ready_nodes);
    until("no node", &client, |it| ready(it) == Some(0)).await;
    assert_eq!(clusters.facts()["one"].ready_nodes, 0);
    let view = clusters.view(&BTreeMap::new()).remove(0);
    assert_eq!((view.health, view.ready_nodes), (Health::Degraded, Some(0)));
    fake.set_ready_nodes(2);
    until("two nodes", &client, |it| ready(it) == Some(2)).await;
    assert_eq!(clusters.facts()["one"].ready_nodes, 2);
    assert_eq!(fake.state.lock().unwrap().info_calls, asked);
    running.abort();
}

#[tokio::test]
async fn fetches_cluster_info_of_an_older_crm_when_it_connects() {
    let fake = Fake::start().await;
    fake.state.lock().unwrap().ready_nodes = Some(1);
    let (clusters, client, running) = connect(&fake).await;
    assert_eq!(clusters.facts()["one"].ready_nodes, 1);
    fake.stop();
    until("lost", &client, |it| !it.connected).await;
    fake.state.lock().unwrap().ready_nodes = Some(4);
    fake.resume();
    until("back", &client, ClassCache::is_fresh).await;
    assert_eq!(clusters.facts()["one"].ready_nodes, 4);
    running.abort();
}

#[tokio::test]
async fn retries_reads_but_not_changes_while_no_server_answers() {
    let fake = Fake::start().await;
    let client = CrmClient::new(fake.config("one"), DEADLINE);
    fake.stop();
    let failed = client.deploy("unit", &unit("call"), ClassSpec::default()).await;
    assert!(matches!(failed, CallOutcome::Failed(_)), "{failed:?}");
    assert_eq!(fake.rejected(), 1);
    let resume = async {
        // The deployment, and the first attempt to read.
        tokio::time::timeout(DEADLINE, fake.wait_for_rejected(2)).await.unwrap();
        fake.resume();
    };
    let (class, ()) = tokio::join!(client.class("unit", "", "call"), resume);
    assert!(matches!(class, Err(Error::NotFound { .. })), "{class:?}");
}

#[tokio::test]
async fn cache_snapshots_are_immutable() {
    let fake = Fake::start().await;
    let client = CrmClient::new(fake.config("one"), DEADLINE);
    let before = client.class_cache();
    client.update_cache(|cache| cache.disconnected("cut".to_owned(), clock::now()));
    assert_eq!(client.class_cache().problem, "cut");
    assert_ne!(before.problem, "cut");
}
