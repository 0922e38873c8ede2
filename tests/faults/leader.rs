//! Two replicas: both serve calls, the leader reconciles, and the other takes over.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams, WatchEvent, WatchParams},
};
use oprc_grpc::deployment::{ClassRuntime, WatchClassRuntimesRequest};
use oprc_sandbox::{proxy::ApiProxy, within};
use oprc_tests::{
    TestNamespace,
    class::{classes, delete, deploy, hello, spec_of, wait_available, wait_for},
    crm::{CrmProcess, Options},
};
use rustix::process::Signal;
use serde_json::json;
use tonic::Status;

use crate::in_shared_cluster;

const LEASE: &str = "oprc-crm";
const LEASES: &str = "leases.coordination.k8s.io";
/// The duration of the lease, plus the time to acquire it.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(17);
/// Bound on a handover with a released lease.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(2);
/// Attempts per measurement in a sample, because the machine may be busy for a moment.
const MAX_ATTEMPTS: usize = 4;
/// Bound on waits that aren't measured.
const WAIT_TIMEOUT: Duration = Duration::from_mins(2);

async fn holder(ns: &TestNamespace, other_than: Option<&str>) -> String {
    let leases: Api<Lease> = Api::namespaced(ns.client.clone(), &ns.name);
    let held = |lease: Option<&Lease>| {
        let holder = lease.and_then(|it| it.spec.as_ref()?.holder_identity.as_deref());
        holder.is_some_and(|holder| !holder.is_empty() && Some(holder) != other_than)
    };
    let lease = wait_for(&leases, LEASE, "a leader", WAIT_TIMEOUT, held).await.unwrap();
    lease.unwrap().spec.unwrap().holder_identity.unwrap()
}

/// Signals the leader, and returns the next one and the time without a leader.
async fn hand_over(
    ns: &TestNamespace,
    leader: CrmProcess,
    signal: Signal,
    name: &str,
) -> (CrmProcess, Duration) {
    let former = holder(ns, None).await;
    let next = CrmProcess::start(ns, &Options::user(name)).await;
    // A replica that isn't the leader serves calls as well.
    deploy(&next.client, "class", &spec_of(&[hello("greet")])).await.unwrap();
    wait_available(ns, "class").await;
    let started = Instant::now();
    leader.signal(signal);
    holder(ns, Some(&former)).await;
    let took = started.elapsed();
    // The new leader reconciles.
    deploy(&next.client, name, &spec_of(&[hello("greet")])).await.unwrap();
    wait_available(ns, name).await;
    delete(&next.client, name).await.unwrap();
    (next, took)
}

mod proof {
    //! Leaders that are killed or stopped, one after another.

    use oprc_tests::{exclusivity::exclusively, proof};

    use super::*;

    /// Hands over within `limit`. Proofs have one attempt.
    async fn in_time(
        ns: &TestNamespace,
        leader: CrmProcess,
        signal: Signal,
        limit: Duration,
        round: usize,
    ) -> (CrmProcess, Duration) {
        let (mut leader, mut all) = (leader, Vec::new());
        for time in 0..if proof::whole() { 1 } else { MAX_ATTEMPTS } {
            let name = format!("after-{}-{round}-{time}", signal.as_raw());
            let (next, took) = hand_over(ns, leader, signal, &name).await;
            if took <= limit {
                return (next, took);
            }
            all.push(took);
            leader = next;
        }
        panic!("round {round}: no leader within {limit:?} after {signal:?}: {all:?}");
    }

    /// Hands over repeatedly by both signals, and returns the last leader and the longest times.
    async fn rounds(ns: &TestNamespace, rounds: usize) -> (CrmProcess, Duration, Duration) {
        let mut leader = CrmProcess::start(ns, &Options::user("first")).await;
        let (mut killed, mut stopped) = (Duration::ZERO, Duration::ZERO);
        for round in 0..rounds {
            let took;
            (leader, took) = in_time(ns, leader, Signal::KILL, TAKEOVER_TIMEOUT, round).await;
            killed = killed.max(took);
            let took;
            (leader, took) = in_time(ns, leader, Signal::TERM, HANDOVER_TIMEOUT, round).await;
            stopped = stopped.max(took);
        }
        (leader, killed, stopped)
    }

    #[tokio::test]
    async fn a_replica_takes_over_from_a_killed_or_stopped_leader() {
        in_shared_cluster(async |ns: &TestNamespace| {
            let proof = proof::begin("leader killed or stopped", 1, 10);
            let (last, killed, stopped) = if proof::whole() {
                // Each measurement counts, so other tests must not interfere.
                exclusively(Box::pin(rounds(ns, proof.rounds))).await
            } else {
                rounds(ns, proof.rounds).await
            };
            let mut spec = spec_of(&[hello("greet"), hello("wave")]);
            spec["functions"][0]["config"] = json!({"env": {"CHANGED": "yes"}});
            deploy(&last.client, "class", &spec).await.unwrap();
            assert_eq!(wait_available(ns, "class").await.functions.len(), 2);
            let seen = format!(
                "{} leaders killed, the next took over within {} ms; {} leaders shut down, the next \
                 took over within {} ms",
                proof.rounds,
                killed.as_millis(),
                proof.rounds,
                stopped.as_millis()
            );
            println!("{seen}");
            proof.held(&seen);
        })
        .await;
    }
}

#[tokio::test]
async fn a_leader_frozen_past_its_lease_writes_nothing_after_it_resumes() {
    in_shared_cluster(async |ns: &TestNamespace| {
        let proxy = ApiProxy::start(&ns.cluster).await.unwrap();
        let frozen = CrmProcess::start(ns, &Options::user("frozen").through(proxy.url())).await;
        let former = holder(ns, None).await;
        let awake = CrmProcess::start(ns, &Options::user("awake").through(proxy.url())).await;
        deploy(&awake.client, "class", &spec_of(&[hello("greet")])).await.unwrap();
        wait_available(ns, "class").await;

        frozen.signal(Signal::STOP);
        // Work that it observes when it resumes.
        let patch = json!({"spec": {"functions": [hello("greet"), hello("wave")]}});
        let merge = Patch::Merge(&patch);
        classes(ns).patch("class", &PatchParams::default(), &merge).await.unwrap();
        let leader = holder(ns, Some(&former)).await;
        wait_available(ns, "class").await;
        let leases: Api<Lease> = Api::namespaced(ns.client.clone(), &ns.name);
        let before = leases.get(LEASE).await.unwrap();
        proxy.reset();
        frozen.signal(Signal::CONT);
        // It could only write for changes that it has observed: those during the freeze, and later
        // ones. It learns of its lost leadership without a request.
        wait_observed(ns, &frozen).await;
        deploy(&awake.client, "class", &spec_of(&[hello("wave")])).await.unwrap();
        wait_available(ns, "class").await;
        wait_observed(ns, &frozen).await;
        let reads = ["get", "list", "watch"];
        let tried: Vec<_> = proxy
            .recorded()
            .into_iter()
            .filter(|seen| seen.client == "frozen" && !reads.contains(&seen.info.verb.as_str()))
            .filter(|seen| seen.info.verb != "update" || seen.info.resource != LEASES)
            .collect();
        assert!(tried.is_empty(), "{tried:?}");
        // It may try to renew the lease, which fails: only the new leader has written it.
        let holders = holders_since(&leases, &before).await;
        assert!(holders.iter().all(|holder| *holder == leader), "{holders:?}, not only {leader}");
    })
    .await;
}

/// Waits until a CRM reports the present state of the class.
async fn wait_observed(ns: &TestNamespace, crm: &CrmProcess) {
    let now = classes(ns).get("class").await.unwrap();
    let seen = |class: &ClassRuntime| {
        let observed = class.status.as_ref().map(|status| status.observed_generation);
        Some(class.generation) == now.metadata.generation && observed == Some(class.generation)
    };
    let waiting = async {
        let all = WatchClassRuntimesRequest::default();
        let mut events = crm.client.clone().watch_class_runtimes(all).await?.into_inner();
        while let Some(event) = events.try_next().await? {
            if event.class_runtime.is_some_and(|class| seen(&class)) {
                return Ok(());
            }
        }
        Err(Status::unavailable("the stream has ended"))
    };
    within("a CRM to observe the latest class", WAIT_TIMEOUT, waiting).await.unwrap();
}

/// Holders of the lease since a version of it.
async fn holders_since(leases: &Api<Lease>, before: &Lease) -> Vec<String> {
    let version = |lease: &Lease| lease.metadata.resource_version.clone().unwrap();
    let now = leases.get(LEASE).await.unwrap();
    let mut holders = Vec::new();
    if version(before) == version(&now) {
        return holders;
    }
    let only = WatchParams::default().fields(&format!("metadata.name={LEASE}"));
    let reading = async {
        let mut events = leases.watch(&only, &version(before)).await?.boxed();
        while let Some(event) = events.try_next().await? {
            let WatchEvent::Modified(lease) = event else { panic!("{event:?}") };
            let last = version(&lease) == version(&now);
            holders.extend(lease.spec.and_then(|it| it.holder_identity));
            if last {
                break;
            }
        }
        Ok::<_, kube::Error>(())
    };
    within("the lease's versions", WAIT_TIMEOUT, reading).await.unwrap();
    holders
}
