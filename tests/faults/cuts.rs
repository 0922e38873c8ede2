//! CRM is cut off in the middle of what it does, and another goes on: the end is the same.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::http::{Method, Request, Response};
use futures::future::BoxFuture;
use kube::{ResourceExt as _, client::ClientBuilder};
use oprc_crm::{
    cluster::Contact,
    crd::Phase,
    kinds::{BUILT_IN, DEPLOYMENT},
};
use oprc_tests::{
    Place,
    class::{all, available, delete, deploy, everything, gone, hello, of, until, with_odgm},
    crm::{Crm, Options, Separate, allow, install, kube_config},
    eventually, in_namespace_of, proof as proofs, with_simulated,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tower::{BoxError, Layer, Service};

/// Lets so many writes through, and then nothing at all.
#[derive(Clone)]
struct Cut {
    left: Arc<AtomicU64>,
    /// Whether the last one is carried out before the end.
    carried_out: bool,
    reached: Arc<Notify>,
}

#[derive(Clone)]
struct CutService<S> {
    inner: S,
    cut: Cut,
}

impl<S> Layer<S> for Cut {
    type Service = CutService<S>;

    fn layer(&self, inner: S) -> CutService<S> {
        CutService { inner, cut: self.clone() }
    }
}

impl<S, B, C> Service<Request<B>> for CutService<S>
where
    S: Service<Request<B>, Response = Response<C>, Error = BoxError>,
    S::Future: Send + 'static,
    C: Send + 'static,
{
    type Response = Response<C>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<C>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let write = request.method() != Method::GET;
        let left = if write {
            self.cut.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                Some(left.saturating_sub(1))
            })
        } else {
            Ok(self.cut.left.load(Ordering::SeqCst).max(2))
        };
        let left = left.unwrap_or_default();
        let cut = self.cut.clone();
        if left == 0 || (left == 1 && write && !cut.carried_out) {
            cut.reached.notify_one();
            return Box::pin(std::future::pending());
        }
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            if left == 1 && write {
                cut.reached.notify_one();
                std::future::pending::<()>().await;
            }
            answer
        })
    }
}

fn options() -> Options {
    Options::default().with("OPRC_CRM_FEATURES_LEADER_ELECTION", "false")
}

/// The life of a class, stage by stage: what each calls for, and when it is reached.
const STAGES: usize = 5;

fn spec_of(stage: usize) -> Option<Value> {
    let three = [hello("a"), hello("b"), hello("c")];
    match stage {
        0 => Some(with_odgm(&three)),
        1 => {
            let mut spec = with_odgm(&three);
            spec["functions"][0]["config"] = json!({"env": {"CHANGED": "yes"}});
            Some(spec)
        }
        2 => Some(with_odgm(&three[..2])),
        3 => Some(of(&three[..2])),
        _ => None,
    }
}

/// What there is in the end of a stage, without what differs between any two runs.
async fn state(place: &Place) -> BTreeMap<String, Value> {
    let mut state = BTreeMap::new();
    for kind in BUILT_IN {
        for object in all(place, &kind).await {
            let name = format!("{kind}/{}", object.name_any());
            let template = object.data.pointer("/spec/template").cloned().unwrap_or_default();
            let ports = object.data.pointer("/spec/ports").cloned().unwrap_or_default();
            state.insert(name, json!({"template": template, "ports": ports}));
        }
    }
    state
}

/// Names of what differs: the objects themselves would fill pages.
fn differences(found: &BTreeMap<String, Value>, expected: &BTreeMap<String, Value>) -> Vec<String> {
    let names = found.keys().chain(expected.keys());
    let differ = names.filter(|name| found.get(*name) != expected.get(*name));
    differ.cloned().collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

async fn reach(place: &Place, stage: usize) {
    if spec_of(stage).is_some() {
        available(place, "class").await;
        eventually("leftovers to go", Duration::from_secs(30), || async {
            let wanted = usize::from(stage < 3) + if stage < 2 { 3 } else { 2 };
            let found = all(place, &DEPLOYMENT).await.len();
            if found == wanted { Ok(()) } else { Err(format!("{found} Deployments")) }
        })
        .await;
    } else {
        gone(place, "class").await;
        eventually("everything to go", Duration::from_secs(30), || async {
            let left = everything(place).await;
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
    }
}

async fn ask(crm: &oprc_tests::crm::Client, stage: usize) -> Result<(), tonic::Status> {
    match spec_of(stage) {
        Some(spec) => deploy(crm, "class", &spec).await.map(|_| ()),
        None => delete(crm, "class").await,
    }
}

/// What every stage ends in when nothing goes wrong.
async fn undisturbed(place: &Place) -> Vec<BTreeMap<String, Value>> {
    let crm = Crm::start(place, &options()).await;
    let mut states = Vec::new();
    for stage in 0..STAGES {
        ask(&crm.client, stage).await.unwrap();
        reach(place, stage).await;
        states.push(state(place).await);
    }
    states
}

/// Runs one stage with a CRM that is cut after so many writes, and then with one that isn't.
async fn cut_stage(place: &Place, stage: usize, writes: u64, carried_out: bool) -> bool {
    let cut = Cut {
        left: Arc::new(AtomicU64::new(writes)),
        carried_out,
        reached: Arc::new(Notify::new()),
    };
    let contact = Contact::default();
    let config = kube_config(place, &options()).await;
    let client = ClientBuilder::try_from(config).unwrap().with_layer(&cut).build();
    let crm = Crm::with_client(place, &options(), client, contact).await;
    let asked = crm.client.clone();
    let call = tokio::spawn(async move { ask(&asked, stage).await });
    let ended = tokio::select! {
        () = cut.reached.notified() => false,
        () = reach(place, stage) => true,
    };
    call.abort();
    drop(crm);
    // Who wasn't answered asks again.
    let crm = Crm::start(place, &options()).await;
    match ask(&crm.client, stage).await {
        Ok(()) => {}
        Err(status) if status.code() == tonic::Code::NotFound && spec_of(stage).is_none() => {}
        Err(status) => panic!("{status}"),
    }
    reach(place, stage).await;
    ended
}

mod proof {
    use super::*;

    /// More writes than any stage takes.
    const MOST: u64 = 20;

    #[tokio::test]
    async fn cut_after_any_write_it_ends_the_same() {
        let proof = proofs::begin("CRM cut before and after writes", 2, 60);
        let rounds = u64::try_from(proof.rounds).unwrap();
        with_simulated("test-cuts", 1, async |cluster| {
            install(&cluster);
            in_namespace_of(cluster.clone(), async |place: &Place| {
                allow(place, &options()).await;
                let expected = undisturbed(place).await;
                let mut cuts = 0;
                for round in 0..rounds {
                    // A different write of each stage in each round, spread over all of them.
                    for (stage, expected) in expected.iter().enumerate() {
                        let writes = 1
                            + (round * 7 + u64::try_from(stage).unwrap() * 3)
                                % MOST.min(2 + rounds);
                        let ended = cut_stage(place, stage, writes, round % 2 == 0).await;
                        cuts += u64::from(!ended);
                        let differ = differences(&state(place).await, expected);
                        assert!(differ.is_empty(), "stage {stage}, cut after {writes}: {differ:?}");
                    }
                }
                assert!(cuts > 0, "nothing was cut");
                proof.held(&format!("{cuts} cuts in {} stages: the same in the end", rounds * 5));
            })
            .await;
        })
        .await;
    }

    #[tokio::test]
    async fn killed_at_any_time_it_ends_the_same() {
        let proof = proofs::begin("CRM killed in the middle", 1, 10);
        let rounds = proof.rounds;
        with_simulated("test-kills", 1, async |cluster| {
            install(&cluster);
            in_namespace_of(cluster.clone(), async |place: &Place| {
                let expected = undisturbed(place).await;
                for round in 0..rounds {
                    for (stage, expected) in expected.iter().enumerate() {
                        let crm = Separate::start(place, &options()).await;
                        ask(&crm.client, stage).await.unwrap();
                        // Later each time: from before the first write to after the last.
                        let pause = 15 * u64::try_from(round + stage).unwrap();
                        tokio::time::sleep(Duration::from_millis(pause)).await;
                        crm.signal(Signal::KILL);
                        drop(crm);
                        let crm = Separate::start(place, &options()).await;
                        reach(place, stage).await;
                        let differ = differences(&state(place).await, expected);
                        assert!(differ.is_empty(), "stage {stage}: {differ:?}");
                        drop(crm);
                    }
                }
                proof.held(&format!("{} kills: the same in the end", rounds * STAGES));
            })
            .await;
        })
        .await;
    }
}

/// A class that is paused is left as it is, until it is not.
#[tokio::test]
async fn paused_means_that_nothing_is_changed() {
    with_simulated("test-paused", 1, async |cluster| {
        install(&cluster);
        in_namespace_of(cluster.clone(), async |place: &Place| {
            let crm = Crm::start(place, &options()).await;
            let mut spec = of(&[hello("a")]);
            deploy(&crm.client, "class", &spec).await.unwrap();
            available(place, "class").await;
            let before = state(place).await;
            spec["functions"][0]["config"] = json!({"env": {"CHANGED": "yes"}});
            spec["paused"] = json!(true);
            deploy(&crm.client, "class", &spec).await.unwrap();
            until(place, "class", "the pause to be told", Duration::from_secs(10), |status| {
                status.conditions.iter().any(|it| it.reason == "Paused")
            })
            .await;
            assert_eq!(state(place).await, before);
            spec["paused"] = json!(false);
            deploy(&crm.client, "class", &spec).await.unwrap();
            let status = available(place, "class").await;
            assert_eq!(status.phase, Phase::Available);
            assert_ne!(state(place).await, before);
        })
        .await;
    })
    .await;
}
