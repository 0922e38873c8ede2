//! Watches break, and what they would have told is known all the same.

use std::{collections::BTreeMap, time::Duration};

use kube::api::{Patch, PatchParams};
use oprc_sandbox::{
    proxy::{ApiProxy, Fault, Match},
    supervisor::Action,
};
use oprc_tests::{
    Place,
    class::{available, classes, deploy, hello, with_odgm},
    crm::{Crm, Options},
    eventually,
};
use serde_json::json;

use crate::{
    in_own_cluster, in_shared_cluster,
    traffic::{count, counted, watched},
};

/// How long a watch may take until it is tried again.
const AGAIN: Duration = Duration::from_secs(20);

fn watches() -> Match {
    Match::any().client("blind").verb("watch")
}

/// Watches that break are opened again where they were, and nothing is missed in between.
#[tokio::test]
async fn watches_that_break_miss_nothing() {
    in_shared_cluster(async |place: &Place| {
        let proxy = ApiProxy::start(&place.cluster).await.unwrap();
        let crm = Crm::start(place, &Options::user("blind").through(proxy.url())).await;
        for round in 0..3 {
            proxy.reset();
            let cut = proxy.inject(watches(), Fault::Cut);
            let name = format!("blind-{round}");
            deploy(&crm.client, &name, &with_odgm(&[hello("greet")])).await.unwrap();
            drop(cut);
            available(place, &name).await;
            let counts = proxy.counts();
            assert!(count(&counts, "blind", "watch", "") > 0, "{counts:#?}");
            assert_eq!(count(&counts, "blind", "list", ""), 0, "{counts:#?}");
        }
    })
    .await;
}

/// A server that has forgotten where a watch was says so with 410: everything is listed again, once.
#[tokio::test]
async fn what_the_server_has_forgotten_is_listed_once() {
    in_own_cluster("test-forgotten", async |place: &Place| {
        let proxy = ApiProxy::start(&place.cluster).await.unwrap();
        let crm = Crm::start(place, &Options::user("blind").through(proxy.url())).await;
        deploy(&crm.client, "class", &with_odgm(&[hello("a")])).await.unwrap();
        available(place, "class").await;
        let all = watched(&proxy.counts(), "blind");
        assert!(all.len() > 8, "{all:?}");

        // No watch runs any more, and none can be opened.
        proxy.reset();
        let closed = proxy.inject(watches(), Fault::Refuse);
        let cut = proxy.inject(watches(), Fault::Cut);
        counted(&proxy, "all watches to be cut", AGAIN, |counts| {
            all.iter().all(|resource| count(counts, "blind", "watch", resource) > 0)
        })
        .await;
        drop(cut);
        // The class changes, and a server that has just started knows of nothing earlier.
        let patch = json!({"spec": {"functions": [hello("a"), hello("b")]}});
        let merge = Patch::Merge(&patch);
        classes(place).patch("class", &PatchParams::default(), &merge).await.unwrap();
        place.cluster.supervisor().act("kube-apiserver", Action::Stop).await.unwrap();
        place.cluster.supervisor().act("kube-apiserver", Action::Start).await.unwrap();
        eventually("the API server", Duration::from_secs(30), || async {
            let asked = axum::http::Request::get("/readyz").body(Vec::new()).unwrap();
            place.client.request_text(asked).await.map_err(|error| error.to_string())
        })
        .await;

        proxy.reset();
        drop(closed);
        let seen = available(place, "class").await;
        assert_eq!(seen.functions.len(), 2);
        let reopened = |counts: &oprc_sandbox::proxy::Counts| {
            // One is refused because it is too old, the next begins at the list.
            all.iter().all(|resource| count(counts, "blind", "watch", resource) > 1)
        };
        counted(&proxy, "all watches to run again", AGAIN, reopened).await;
        let counts = proxy.counts();
        let lists: BTreeMap<_, _> =
            all.iter().map(|it| (it, count(&counts, "blind", "list", it))).collect();
        assert!(lists.values().all(|count| *count == 1), "{lists:#?}");
    })
    .await;
}

/// The same said in place of a watch, by whatever stands in between: everything is listed again, and
/// once it isn't said any more, once.
#[tokio::test]
async fn watches_that_are_gone_for_a_moment_miss_nothing() {
    in_shared_cluster(async |place: &Place| {
        let proxy = ApiProxy::start(&place.cluster).await.unwrap();
        let crm = Crm::start(place, &Options::user("blind").through(proxy.url())).await;
        deploy(&crm.client, "class", &with_odgm(&[hello("a")])).await.unwrap();
        available(place, "class").await;
        let all = watched(&proxy.counts(), "blind");
        proxy.reset();
        let gone = proxy.inject(watches(), Fault::Status(410, None));
        let cut = proxy.inject(watches(), Fault::Cut);
        counted(&proxy, "all watches to be gone", AGAIN, |counts| {
            all.iter().all(|resource| count(counts, "blind", "watch", resource) > 0)
        })
        .await;
        deploy(&crm.client, "class", &with_odgm(&[hello("a"), hello("b")])).await.unwrap();
        let met = proxy.counts();
        drop((gone, cut));
        assert_eq!(available(place, "class").await.functions.len(), 2);
        counted(&proxy, "all watches to run again", AGAIN, |counts| {
            let asked = |counts, resource| count(counts, "blind", "watch", resource);
            all.iter().all(|resource| asked(counts, resource) > asked(&met, resource))
        })
        .await;
        let counts = proxy.counts();
        let lists = |counts, resource: &String| count(counts, "blind", "list", resource);
        let once = |it: &String| (1..=lists(&met, it) + 1).contains(&lists(&counts, it));
        assert!(all.iter().all(once), "{counts:#?}");
    })
    .await;
}
