//! Broken watches lose no event.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::Service;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use oprc_sandbox::{
    proxy::{ApiProxy, Fault, Match},
    supervisor::Action,
};
use oprc_tests::{
    TestNamespace,
    class::{classes, deploy, hello, spec_of, wait_available, wait_degraded, with_odgm},
    crm::{Crm, Options},
    eventually,
};
use oprc_unit::names;
use serde_json::json;

use crate::{
    in_own_cluster, in_shared_cluster, is_ready,
    request_counts::{count, wait_for_counts, watched},
};

/// Bound on reopening a watch, and on the restart of the API server.
const REOPEN_TIMEOUT: Duration = Duration::from_mins(3);
/// Lists that an API server may reject right after its start.
const MAX_REJECTED_LISTS: u64 = 2;

fn watches() -> Match {
    Match::any().client("blind").verb("watch")
}

/// Watches are reopened at their last resource version.
#[tokio::test]
async fn broken_watches_miss_no_event() {
    in_shared_cluster(async |ns: &TestNamespace| {
        let proxy = ApiProxy::start(&ns.cluster).await.unwrap();
        let crm = Crm::start(ns, &Options::user("blind").through(proxy.url())).await;
        for round in 0..3 {
            proxy.reset();
            let cut = proxy.inject(watches(), Fault::DropResponse);
            let name = format!("blind-{round}");
            deploy(&crm.client, &name, &with_odgm(&[hello("greet")])).await.unwrap();
            drop(cut);
            wait_available(ns, &name).await;
            let counts = proxy.counts();
            assert!(count(&counts, "blind", "watch", "") > 0, "{counts:#?}");
            assert_eq!(count(&counts, "blind", "list", ""), 0, "{counts:#?}");
        }
    })
    .await;
}

/// A server that has lost its history responds with 410, and CRM lists everything again, once.
#[tokio::test]
async fn relists_once_after_410_expired() {
    in_own_cluster("test-expired", async |ns: &TestNamespace| {
        let proxy = ApiProxy::start(&ns.cluster).await.unwrap();
        let crm = Crm::start(ns, &Options::user("blind").through(proxy.url())).await;
        deploy(&crm.client, "class", &with_odgm(&[hello("a")])).await.unwrap();
        wait_available(ns, "class").await;
        let all = watched(&proxy.counts(), "blind");
        assert!(all.len() > 8, "{all:?}");

        // All watches are closed, and none can be opened.
        proxy.reset();
        let closed = proxy.inject(watches(), Fault::DropRequest);
        let cut = proxy.inject(watches(), Fault::DropResponse);
        wait_for_counts(&proxy, "all watches to be cut", REOPEN_TIMEOUT, |counts| {
            all.iter().all(|resource| count(counts, "blind", "watch", resource) > 0)
        })
        .await;
        drop(cut);
        // The class changes, and the restarted server has no earlier history.
        let patch = json!({"spec": {"functions": [hello("a"), hello("b")]}});
        let merge = Patch::Merge(&patch);
        classes(ns).patch("class", &PatchParams::default(), &merge).await.unwrap();
        ns.cluster.supervisor().act("kube-apiserver", Action::Stop).await.unwrap();
        ns.cluster.supervisor().act("kube-apiserver", Action::Start).await.unwrap();
        eventually("the API server", REOPEN_TIMEOUT, || is_ready(ns)).await;

        proxy.reset();
        drop(closed);
        let seen = wait_available(ns, "class").await;
        assert_eq!(seen.functions.len(), 2);
        let reopened = |counts: &oprc_sandbox::proxy::Counts| {
            // The first is rejected as expired, the next starts at the list.
            all.iter().all(|resource| count(counts, "blind", "watch", resource) > 1)
        };
        wait_for_counts(&proxy, "all watches to be reopened", REOPEN_TIMEOUT, reopened).await;
        let counts = proxy.counts();
        let lists: BTreeMap<_, _> =
            all.iter().map(|it| (it, count(&counts, "blind", "list", it))).collect();
        let resources = u64::try_from(lists.len()).unwrap();
        assert!(lists.values().all(|count| *count > 0), "{lists:#?}");
        assert!(lists.values().sum::<u64>() <= resources + MAX_REJECTED_LISTS, "{lists:#?}");
    })
    .await;
}

/// A proxy responds with 410 for a while: CRM lists everything again, and once more afterwards.
#[tokio::test]
async fn watches_with_temporary_410_miss_no_event() {
    in_shared_cluster(async |ns: &TestNamespace| {
        let proxy = ApiProxy::start(&ns.cluster).await.unwrap();
        let crm = Crm::start(ns, &Options::user("blind").through(proxy.url())).await;
        deploy(&crm.client, "class", &with_odgm(&[hello("a")])).await.unwrap();
        wait_available(ns, "class").await;
        let all = watched(&proxy.counts(), "blind");
        proxy.reset();
        let expired = proxy.inject(watches(), Fault::Status(410, None));
        let cut = proxy.inject(watches(), Fault::DropResponse);
        wait_for_counts(&proxy, "all watches to expire", REOPEN_TIMEOUT, |counts| {
            all.iter().all(|resource| count(counts, "blind", "watch", resource) > 0)
        })
        .await;
        deploy(&crm.client, "class", &with_odgm(&[hello("a"), hello("b")])).await.unwrap();
        let before = proxy.counts();
        drop((expired, cut));
        assert_eq!(wait_available(ns, "class").await.functions.len(), 2);
        wait_for_counts(&proxy, "all watches to be reopened", REOPEN_TIMEOUT, |counts| {
            let opened = |counts, resource| count(counts, "blind", "watch", resource);
            all.iter().all(|resource| opened(counts, resource) > opened(&before, resource))
        })
        .await;
        let counts = proxy.counts();
        let lists = |counts, resource: &String| count(counts, "blind", "list", resource);
        let once = |it: &String| (1..=lists(&before, it) + 1).contains(&lists(&counts, it));
        assert!(all.iter().all(once), "{counts:#?}");
    })
    .await;
}

/// CRM must not take over an object of another owner that no watch has reported yet.
#[tokio::test]
async fn does_not_overwrite_objects_it_has_not_observed() {
    in_shared_cluster(async |ns: &TestNamespace| {
        let proxy = ApiProxy::start(&ns.cluster).await.unwrap();
        let crm = Crm::start(ns, &Options::user("blind").through(proxy.url())).await;
        let held = proxy.inject(watches().resource("services"), Fault::Hold);
        let name = names::function("class", Some("greet"));
        let foreign: Service = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"selector": {"app": "theirs"}, "ports": [{"port": 80}]},
        }))
        .unwrap();
        let services: Api<Service> = Api::namespaced(ns.client.clone(), &ns.name);
        let foreign = services.create(&PostParams::default(), &foreign).await.unwrap();
        deploy(&crm.client, "class", &spec_of(&[hello("greet")])).await.unwrap();
        // A retry means that the first attempt was rejected.
        wait_for_counts(&proxy, "a second attempt", REOPEN_TIMEOUT, |counts| {
            count(counts, "blind", "patch", "services") > 1
        })
        .await;
        assert_eq!(services.get(&name).await.unwrap(), foreign);
        drop(held);
        wait_degraded(ns, "class", "NameConflict").await;
        assert_eq!(services.get(&name).await.unwrap(), foreign);
    })
    .await;
}
