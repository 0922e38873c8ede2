//! PM is killed before and after each writing call to a CRM or its store. Clients retry; the final
//! state is the same.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use hyper::Method;
use oprc_tests::{
    etcd::Etcd,
    eventually,
    pm::{Pm, ROLLOUT_TIMEOUT, Setup, deployment, package},
    relay::{Relay, Trap},
};
use serde_json::{Value, json};

use crate::two_clusters::TestCluster;

/// Time without calls after which PM is idle: the record of a deleted unit is kept for calls in
/// flight.
const QUIET: Duration = Duration::from_secs(20);

/// The change during which PM is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Create,
    /// Another version of a running deployment.
    Update,
    Delete,
    /// A new ALL_OR_NOTHING deployment that the second cluster rejects.
    CreateRefused,
    /// An update of an ALL_OR_NOTHING deployment that the second cluster rejects.
    UpdateRefused,
    /// An update while the second cluster is unreachable for some time.
    UpdatePartly,
    /// A new ALL_OR_NOTHING deployment while the second cluster is unreachable for some time.
    CreateAway,
    /// An update of an ALL_OR_NOTHING deployment while the second cluster is unreachable for some
    /// time.
    UpdateAway,
}

pub(crate) const ACTS: [Act; 8] = [
    Act::Create,
    Act::Update,
    Act::Delete,
    Act::CreateRefused,
    Act::UpdateRefused,
    Act::UpdatePartly,
    Act::CreateAway,
    Act::UpdateAway,
];

impl Act {
    /// Whether it creates the deployment.
    fn makes(self) -> bool {
        matches!(self, Self::Create | Self::CreateRefused | Self::CreateAway)
    }

    /// Whether the second cluster rejects it.
    fn is_refused(self) -> bool {
        matches!(self, Self::CreateRefused | Self::UpdateRefused)
    }

    /// Whether the second cluster is unreachable at first.
    fn is_away(self) -> bool {
        matches!(self, Self::UpdatePartly | Self::CreateAway | Self::UpdateAway)
    }

    /// Whether its policy is ALL_OR_NOTHING.
    fn is_all_or_nothing(self) -> bool {
        self.is_refused() || matches!(self, Self::CreateAway | Self::UpdateAway)
    }

    /// The version that runs at the end.
    fn leaves(self) -> Option<&'static str> {
        match self {
            Self::Create | Self::UpdateRefused | Self::UpdateAway => Some("1.0.0"),
            Self::Update | Self::UpdatePartly => Some("2.0.0"),
            Self::Delete | Self::CreateRefused | Self::CreateAway => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// PM was killed there, and the final state is right.
    Killed,
    /// The change ended before that point.
    Over,
}

/// Makes a change, kills PM at a point of it, and checks the final state.
pub(crate) async fn round(
    east: &TestCluster<'_>,
    west: &TestCluster<'_>,
    etcd: &Etcd,
    act: Act,
    point: usize,
) -> Round {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    // Rounds share the clusters, so each has its own names for them.
    let (one, two) = (format!("east-{number}"), format!("west-{number}"));
    let trap = Trap::default();
    let first = Relay::start(&east.crm.url, &trap).await;
    let second = Relay::start(&west.crm.url, &trap).await;
    let store = Relay::start(&etcd.endpoint(), &trap).await;
    let setup =
        Setup::of([(one.as_str(), first.url.as_str()), (two.as_str(), second.url.as_str())])
            .in_etcd(&store.url, &format!("round-{number}"))
            .with("OPRC_PM_STORE_ETCD_LEASE", "20s")
            .with(
                "OPRC_PM_DEPLOYMENTS_UNREACHABLE_DEADLINE",
                if act.is_away() { "5s" } else { "5m" },
            );
    let mut pm = Pm::start(&setup).await;
    for version in ["1.0.0", "2.0.0"] {
        pm.publish(&package(version)).await;
    }
    let key = format!("d{number}");
    let wanted = |version: &str| {
        let mut wanted = deployment(&key, version);
        wanted["targetClusters"] = json!([one, two]);
        wanted["policy"] =
            if act.is_all_or_nothing() { "ALL_OR_NOTHING" } else { "BEST_EFFORT" }.into();
        wanted
    };
    for cluster in [&one, &two] {
        pm.wait_for_cluster(cluster, "HEALTHY").await;
    }
    if !act.makes() {
        pm.deploy(&wanted("1.0.0")).await.unwrap();
        pm.wait_for_condition(&key, "RUNNING").await;
    }
    second.refuse(act.is_refused());
    if act.is_away() {
        second.away(true);
        pm.wait_for_cluster(&two, "UNREACHABLE").await;
    }
    trap.arm(point, pm.killer());
    let asked = ask(&pm, act, &key, &wanted).await;
    let hit = tokio::select! {
        () = trap.sprung() => true,
        () = done(&pm, act, &key, &second), if asked.is_ok() => {
            // There may be more writes to the store.
            tokio::time::timeout(QUIET, trap.sprung()).await.is_ok()
        }
        () = pm.ended() => {
            // On a busy machine PM may lose its lease and exit, which must end the same. It may
            // exit for no other reason.
            if tokio::time::timeout(QUIET, trap.sprung()).await.is_err() {
                eventually("why it has ended", ROLLOUT_TIMEOUT, || async {
                    let log = pm.log();
                    if log.contains("lost the lease") { Ok(()) } else { Err(log) }
                })
                .await;
            }
            true
        }
        () = tokio::time::sleep(ROLLOUT_TIMEOUT) => panic!("{act:?} at {point}: neither done nor killed"),
    };
    trap.disarm();
    if hit {
        pm = pm.restart().await;
        if asked.is_err() {
            // A client without a response retries.
            again(&pm, act, &key, &wanted).await;
        }
        done(&pm, act, &key, &second).await;
    }
    let ids = (format!("{key}.Sample..{one}"), format!("{key}.Sample..{two}"));
    let mark = act.leaves();
    let prefix = format!("{key}.");
    for (half, id) in [(east, &ids.0), (west, &ids.1)] {
        let expected: Vec<_> = mark.iter().map(|mark| (id.as_str(), *mark)).collect();
        half.exactly(&prefix, &expected).await;
    }
    // There are no units of abandoned plans and no orphans.
    eventually("no orphan and no unit too many", ROLLOUT_TIMEOUT, || async {
        let orphans = pm.call(Method::GET, "/orphans", None).await?;
        let status = pm.call(Method::GET, &format!("/deployments/{key}/status"), None).await;
        let units = status.ok().and_then(|it| it["units"].as_array().map(Vec::len));
        let wanted = if mark.is_some() { 2 } else { 0 };
        let right = orphans["items"] == json!([]) && units.unwrap_or_default() == wanted;
        if right { Ok(()) } else { Err(format!("{orphans}, {units:?} units")) }
    })
    .await;
    second.refuse(false);
    pm.call(Method::DELETE, &format!("/deployments/{key}"), None).await.ok();
    pm.wait_deleted(&key).await;
    if hit { Round::Killed } else { Round::Over }
}

async fn ask(
    pm: &Pm,
    act: Act,
    key: &str,
    wanted: &impl Fn(&str) -> Value,
) -> Result<Value, String> {
    if act == Act::Delete {
        return pm.call(Method::DELETE, &format!("/deployments/{key}"), None).await;
    }
    pm.deploy(&wanted(if act.makes() { "1.0.0" } else { "2.0.0" })).await
}

/// Retries a request that may have been stored: it is idempotent.
async fn again(pm: &Pm, act: Act, key: &str, wanted: &impl Fn(&str) -> Value) {
    eventually("a response", ROLLOUT_TIMEOUT, || async {
        match ask(pm, act, key, wanted).await {
            // It may be deleted already.
            Err(error) if act == Act::Delete && error.starts_with("404") => Ok(()),
            other => other.map(drop),
        }
    })
    .await;
}

/// Waits for the final condition; the second cluster becomes reachable once the first is done.
async fn done(pm: &Pm, act: Act, key: &str, second: &Relay) {
    if act == Act::Delete {
        return pm.wait_deleted(key).await;
    }
    let (first, end) = match (act.is_all_or_nothing(), act.is_away()) {
        (true, _) => (["ROLLING_BACK", "ROLLED_BACK"], "ROLLED_BACK"),
        (false, true) => (["PARTIAL", "RUNNING"], "RUNNING"),
        (false, false) => (["RUNNING", "RUNNING"], "RUNNING"),
    };
    let told = |status: &Value| {
        let condition = status["condition"].as_str();
        condition.is_some_and(|it| first.contains(&it))
    };
    pm.wait_for(key, first[0], told).await;
    second.away(false);
    pm.wait_for_condition(key, end).await;
}
