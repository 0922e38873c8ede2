//! Two CRMs: both take calls, one writes, and the other takes over when that one is gone.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams, WatchEvent, WatchParams},
    runtime::wait::await_condition,
};
use oprc_sandbox::{proxy::ApiProxy, within};
use oprc_tests::{
    Place,
    class::{available, classes, deploy, hello, of},
    crm::{Options, Separate},
};
use rustix::process::Signal;
use serde_json::json;

use crate::{
    in_shared_cluster,
    traffic::{count, counted},
};

/// The lease's name, and what leases are called.
const LEASE: &str = "oprc-crm";
const LEASES: &str = "leases.coordination.k8s.io";
/// How long a lease holds that isn't renewed, and what taking it over may take on top.
const TAKEOVER: Duration = Duration::from_secs(17);
const CLEAN: Duration = Duration::from_secs(2);
/// How long one that was frozen may take to ask for something.
const AWAKE: Duration = Duration::from_secs(10);

async fn holder(place: &Place, other_than: Option<&str>, limit: Duration) -> String {
    let leases: Api<Lease> = Api::namespaced(place.client.clone(), &place.namespace);
    let held = |lease: Option<&Lease>| {
        let holder = lease.and_then(|it| it.spec.as_ref()?.holder_identity.as_deref());
        holder.is_some_and(|holder| !holder.is_empty() && Some(holder) != other_than)
    };
    let waiting = await_condition(leases.clone(), LEASE, held);
    within("somebody to lead", limit, waiting).await.unwrap();
    leases.get(LEASE).await.unwrap().spec.unwrap().holder_identity.unwrap()
}

#[tokio::test]
async fn the_other_takes_over_from_one_that_is_killed_and_from_one_that_stops() {
    in_shared_cluster(async |place: &Place| {
        let mut first = Separate::start(place, &Options::user("first")).await;
        let led = holder(place, None, TAKEOVER).await;
        let second = Separate::start(place, &Options::user("second")).await;
        // Whoever doesn't lead takes calls just as well.
        deploy(&second.client, "class", &of(&[hello("greet")])).await.unwrap();
        available(place, "class").await;

        let killed = Instant::now();
        first.child.kill().unwrap();
        let led = holder(place, Some(&led), TAKEOVER).await;
        assert!(killed.elapsed() <= TAKEOVER, "{:?}", killed.elapsed());
        // Whoever leads works, too.
        deploy(&second.client, "taken-over", &of(&[hello("greet")])).await.unwrap();
        available(place, "taken-over").await;

        let third = Separate::start(place, &Options::user("third")).await;
        let stopped = Instant::now();
        second.signal(Signal::TERM);
        holder(place, Some(&led), CLEAN).await;
        assert!(stopped.elapsed() <= CLEAN, "{:?}", stopped.elapsed());
        let mut spec = of(&[hello("greet"), hello("wave")]);
        spec["functions"][0]["config"] = json!({"env": {"CHANGED": "yes"}});
        deploy(&third.client, "class", &spec).await.unwrap();
        assert_eq!(available(place, "class").await.functions.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_leader_that_was_frozen_past_its_lease_changes_nothing_when_it_wakes() {
    in_shared_cluster(async |place: &Place| {
        let proxy = ApiProxy::start(&place.cluster).await.unwrap();
        let frozen = Separate::start(place, &Options::user("frozen").through(proxy.url())).await;
        let led = holder(place, None, TAKEOVER).await;
        let awake = Separate::start(place, &Options::user("awake").through(proxy.url())).await;
        deploy(&awake.client, "class", &of(&[hello("greet")])).await.unwrap();
        available(place, "class").await;

        frozen.signal(Signal::STOP);
        // Something to do that it would see when it wakes.
        let patch = json!({"spec": {"functions": [hello("greet"), hello("wave")]}});
        let merge = Patch::Merge(&patch);
        classes(place).patch("class", &PatchParams::default(), &merge).await.unwrap();
        let leads = holder(place, Some(&led), TAKEOVER).await;
        available(place, "class").await;
        let leases: Api<Lease> = Api::namespaced(place.client.clone(), &place.namespace);
        let before = leases.get(LEASE).await.unwrap();
        proxy.reset();
        frozen.signal(Signal::CONT);
        // It has woken when it watches the lease again, or asks for anything else.
        counted(&proxy, "the frozen one to wake", AWAKE, |counts| {
            count(counts, "frozen", "", "") > 0
        })
        .await;
        deploy(&awake.client, "class", &of(&[hello("wave")])).await.unwrap();
        available(place, "class").await;
        let reads = ["get", "list", "watch"];
        let tried: Vec<_> = proxy
            .seen()
            .into_iter()
            .filter(|seen| seen.client == "frozen" && !reads.contains(&seen.asked.verb.as_str()))
            .filter(|seen| seen.asked.verb != "update" || seen.asked.resource != LEASES)
            .collect();
        assert!(tried.is_empty(), "{tried:?}");
        // It may try to renew what it held, and is refused: nobody else has written the lease.
        let holders = holders_since(&leases, &before).await;
        assert!(holders.iter().all(|holder| *holder == leads), "{holders:?}, not only {leads}");
    })
    .await;
}

/// Who wrote the lease after some version of it, up to now.
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
    within("the lease's versions", AWAKE, reading).await.unwrap();
    holders
}
