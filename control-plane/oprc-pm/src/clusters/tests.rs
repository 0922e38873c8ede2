use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use oprc_grpc::deployment::unit::ClassSpec;
use oprc_rest::{Contact, Health};
use tonic::Code;

use super::{Clusters, Link, Observed, fake::Fake};
use crate::{config::Secret, dispatcher::Outcome};

const DEADLINE: Duration = Duration::from_secs(20);
/// How long what is to come about may take until it is given up.
const PATIENCE: Duration = Duration::from_mins(2);

/// Waits until what is known of a cluster is such.
async fn until(what: &str, link: &Link, such: impl Fn(&Observed) -> bool) {
    let mut changes = link.changes();
    let waiting = async {
        while !such(&link.observed()) {
            changes.changed().await.unwrap();
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "never: {what}");
}

#[tokio::test]
async fn a_link_says_what_came_of_calls() {
    let fake = Fake::start().await;
    let mut config = fake.config("one");
    config.token = Some(Secret::Value("canary".to_owned()));
    let link = Link::new(config, DEADLINE);
    assert_eq!(link.delete("unit", "", "call-1").await, Outcome::Gone);
    let took = link.deploy("unit", "", ClassSpec::default(), "call-2").await;
    let namespace = "default".to_owned();
    assert_eq!(took, Outcome::Took { uid: "1".to_owned(), generation: 1, namespace });
    {
        let state = fake.state.lock().unwrap();
        assert_eq!((state.correlation.as_str(), state.token.as_str()), ("call-2", "Bearer canary"));
    }
    fake.state.lock().unwrap().refuse = Some(Code::FailedPrecondition);
    let refused = link.deploy("unit", "", ClassSpec::default(), "call-3").await;
    assert_eq!(refused, Outcome::Refused("as the test says".to_owned()));
    fake.state.lock().unwrap().refuse = Some(Code::Unavailable);
    // Often enough for the breaker to open: then nobody is asked any more for a while, which is the
    // longer the more often it opens.
    let mut told = String::new();
    for _ in 0..20 {
        let failed = link.deploy("unit", "", ClassSpec::default(), "call-4").await;
        let Outcome::Failed(why) = failed else { panic!("{failed:?}") };
        told = why;
        if told.contains("doesn't answer") {
            break;
        }
    }
    assert!(told.contains("doesn't answer"), "{told}");
}

#[tokio::test]
async fn what_a_crm_says_of_one_class_is_no_silence() {
    let fake = Fake::start().await;
    let is_asked = async |reason| {
        let link = Link::new(fake.config("one"), DEADLINE);
        {
            let mut state = fake.state.lock().unwrap();
            (state.refuse, state.reason) = (Some(Code::Unavailable), Some(reason));
        }
        let mut asked = true;
        for _ in 0..20 {
            let failed = link.deploy("unit", "", ClassSpec::default(), "call").await;
            let Outcome::Failed(why) = failed else { panic!("{failed:?}") };
            asked &= why.contains("as the test says");
        }
        asked
    };
    for reason in ["DELETING", "CONFLICT"] {
        assert!(is_asked(reason).await, "{reason}");
    }
    for reason in ["API_SERVER_UNAVAILABLE", "CRD_MISSING", "NOT_READY"] {
        assert!(!is_asked(reason).await, "{reason}");
    }
}

#[tokio::test]
async fn a_cluster_that_goes_and_comes_back_is_seen_to() {
    let fake = Fake::start().await;
    let clusters = Arc::new(Clusters::new([fake.config("one")], DEADLINE));
    let health = |clusters: &Clusters| clusters.view(|_| 0).first().map(|it| it.health);
    assert_eq!(health(&clusters), Some(Health::Unreachable));
    let running = tokio::spawn({
        let clusters = Arc::clone(&clusters);
        async move { clusters.run().await }
    });
    let link = Arc::clone(clusters.link("one").unwrap());
    until("known", &link, Observed::is_known).await;
    let facts = clusters.facts().await.remove("one").unwrap();
    assert!(facts.reachable && facts.capabilities.unwrap().odgm);
    assert_eq!(facts.capacity.unwrap().cpu_millis, 8000);
    assert_eq!(health(&clusters), Some(Health::Healthy));
    link.deploy("unit", "", ClassSpec::default(), "call").await;
    fake.stop();
    until("lost", &link, |it| it.contact() == Contact::Stale).await;
    assert_eq!(health(&clusters), Some(Health::Unreachable));
    // What it told is still told, as out of date.
    assert_eq!(link.observed().classes().count(), 1);
    fake.state.lock().unwrap().classes.clear();
    fake.resume();
    until("back", &link, Observed::is_known).await;
    until("told anew", &link, |it| it.classes().count() == 0).await;
    running.abort();
}

#[tokio::test]
async fn who_plans_waits_but_a_moment_for_a_silent_cluster() {
    let fake = Fake::start().await;
    let clusters = Arc::new(Clusters::new([fake.config("one")], DEADLINE));
    let running = tokio::spawn({
        let clusters = Arc::clone(&clusters);
        async move { clusters.run().await }
    });
    let link = Arc::clone(clusters.link("one").unwrap());
    until("known", &link, Observed::is_known).await;
    link.age();
    fake.state.lock().unwrap().silent = true;
    let begun = Instant::now();
    let facts = clusters.facts().await.remove("one").unwrap();
    assert_eq!(facts.ready_nodes, 3);
    assert!(begun.elapsed() < DEADLINE / 2, "{:?}", begun.elapsed());
    // It is asked already: nobody else waits.
    let begun = Instant::now();
    clusters.facts().await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    running.abort();
}

#[tokio::test]
async fn who_looks_at_what_is_known_holds_nobody_up() {
    let fake = Fake::start().await;
    let link = Link::new(fake.config("one"), DEADLINE);
    let before = link.observed();
    link.learn(|observed| observed.lost("cut".to_owned(), 1));
    assert_eq!(link.observed().trouble(), "cut");
    assert_ne!(before.trouble(), "cut");
}
