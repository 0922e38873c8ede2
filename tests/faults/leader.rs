//! Two CRMs: both take calls, one writes, and the other takes over when that one is gone.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams},
    runtime::wait::await_condition,
};
use oprc_crm::crd::ClassRuntime;
use oprc_sandbox::{proxy::ApiProxy, within};
use oprc_tests::{
    Place,
    class::{available, classes, deploy, hello, of},
    crm::{Options, Separate},
    in_namespace,
};
use rustix::process::Signal;
use serde_json::json;

/// How long a lease holds that isn't renewed, and what taking it over may take on top.
const TAKEOVER: Duration = Duration::from_secs(17);
const CLEAN: Duration = Duration::from_secs(2);

async fn holder(place: &Place, other_than: Option<&str>, limit: Duration) -> String {
    let leases: Api<Lease> = Api::namespaced(place.client.clone(), &place.namespace);
    let held = |lease: Option<&Lease>| {
        let holder = lease.and_then(|it| it.spec.as_ref()?.holder_identity.as_deref());
        holder.is_some_and(|holder| !holder.is_empty() && Some(holder) != other_than)
    };
    let waiting = await_condition(leases.clone(), "oprc-crm", held);
    within("somebody to lead", limit, waiting).await.unwrap();
    leases.get("oprc-crm").await.unwrap().spec.unwrap().holder_identity.unwrap()
}

#[tokio::test]
async fn the_other_takes_over_from_one_that_is_killed_and_from_one_that_stops() {
    in_namespace(async |place: &Place| {
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
    in_namespace(async |place: &Place| {
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
        holder(place, Some(&led), TAKEOVER).await;
        available(place, "class").await;
        proxy.reset();
        frozen.signal(Signal::CONT);
        // It has woken when it watches the lease again, or asks for anything else.
        proxy.wait_for(|counts| counts.keys().any(|(client, ..)| client == "frozen")).await;
        let status = deploy(&awake.client, "class", &of(&[hello("wave")])).await;
        status.unwrap();
        let class: ClassRuntime = classes(place).get("class").await.unwrap();
        available(place, "class").await;
        let writes: Vec<_> = proxy
            .seen()
            .into_iter()
            .filter(|seen| seen.client == "frozen")
            .filter(|seen| matches!(seen.asked.verb.as_str(), "create" | "patch" | "delete"))
            .collect();
        assert!(writes.is_empty(), "{writes:?}");
        assert!(class.metadata.generation.unwrap() >= 3);
    })
    .await;
}
