//! PM is killed before and after each writing call to a CRM or its store. Clients retry; the final
//! state is the same.

use std::{
    fmt,
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
const IDLE_TIME: Duration = Duration::from_secs(20);

/// The change during which PM is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    /// Another version of a running deployment.
    Update,
    Delete,
    /// A new ALL_OR_NOTHING deployment that the second cluster rejects.
    CreateRejected,
    /// An update of an ALL_OR_NOTHING deployment that the second cluster rejects.
    UpdateRejected,
    /// An update while the second cluster is unreachable for some time.
    UpdatePartial,
    /// A new ALL_OR_NOTHING deployment while the second cluster is unreachable for some time.
    CreateUnreachable,
    /// An update of an ALL_OR_NOTHING deployment while the second cluster is unreachable for some
    /// time.
    UpdateUnreachable,
}

pub(crate) const OPERATIONS: [Operation; 8] = [
    Operation::Create,
    Operation::Update,
    Operation::Delete,
    Operation::CreateRejected,
    Operation::UpdateRejected,
    Operation::UpdatePartial,
    Operation::CreateUnreachable,
    Operation::UpdateUnreachable,
];

/// For the results of `make prove`.
impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Create => "a creation",
            Self::Update => "an update",
            Self::Delete => "a deletion",
            Self::CreateRejected => "an all-or-nothing creation that a cluster rejects",
            Self::UpdateRejected => "an all-or-nothing update that a cluster rejects",
            Self::UpdatePartial => "an update with an unreachable cluster",
            Self::CreateUnreachable => "an all-or-nothing creation with an unreachable cluster",
            Self::UpdateUnreachable => "an all-or-nothing update with an unreachable cluster",
        })
    }
}

impl Operation {
    /// Whether it creates the deployment.
    fn creates(self) -> bool {
        matches!(self, Self::Create | Self::CreateRejected | Self::CreateUnreachable)
    }

    /// Whether the second cluster rejects it.
    fn is_rejected(self) -> bool {
        matches!(self, Self::CreateRejected | Self::UpdateRejected)
    }

    /// Whether the second cluster is unreachable at first.
    fn is_unreachable(self) -> bool {
        matches!(self, Self::UpdatePartial | Self::CreateUnreachable | Self::UpdateUnreachable)
    }

    /// Whether its policy is ALL_OR_NOTHING.
    fn is_all_or_nothing(self) -> bool {
        self.is_rejected() || matches!(self, Self::CreateUnreachable | Self::UpdateUnreachable)
    }

    /// The version that runs at the end.
    fn final_version(self) -> Option<&'static str> {
        match self {
            Self::Create | Self::UpdateRejected | Self::UpdateUnreachable => Some("1.0.0"),
            Self::Update | Self::UpdatePartial => Some("2.0.0"),
            Self::Delete | Self::CreateRejected | Self::CreateUnreachable => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// PM was killed there, and the final state is as expected.
    Killed,
    /// The change ended before that point.
    Over,
}

/// Makes a change, kills PM at a point of it, and checks the final state.
pub(crate) async fn round(
    east: &TestCluster<'_>,
    west: &TestCluster<'_>,
    etcd: &Etcd,
    operation: Operation,
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
                if operation.is_unreachable() { "5s" } else { "5m" },
            );
    let mut pm = Pm::start(&setup).await;
    for version in ["1.0.0", "2.0.0"] {
        pm.publish(&package(version)).await;
    }
    let key = format!("d{number}");
    let desired = |version: &str| {
        let mut desired = deployment(&key, version);
        desired["targetClusters"] = json!([one, two]);
        desired["policy"] =
            if operation.is_all_or_nothing() { "ALL_OR_NOTHING" } else { "BEST_EFFORT" }.into();
        desired
    };
    for cluster in [&one, &two] {
        pm.wait_for_cluster(cluster, "HEALTHY").await;
    }
    if !operation.creates() {
        pm.deploy(&desired("1.0.0")).await.unwrap();
        pm.wait_for_condition(&key, "RUNNING").await;
    }
    second.refuse(operation.is_rejected());
    if operation.is_unreachable() {
        second.away(true);
        pm.wait_for_cluster(&two, "UNREACHABLE").await;
    }
    trap.arm(point, pm.killer());
    let sent = send(&pm, operation, &key, &desired).await;
    let hit = tokio::select! {
        () = trap.sprung() => true,
        () = wait_done(&pm, operation, &key, &second), if sent.is_ok() => {
            // There may be more writes to the store.
            tokio::time::timeout(IDLE_TIME, trap.sprung()).await.is_ok()
        }
        () = pm.ended() => {
            // On a busy machine PM may lose its lease and exit, which must end the same. It may
            // exit for no other reason.
            if tokio::time::timeout(IDLE_TIME, trap.sprung()).await.is_err() {
                eventually("the reason of the exit in the log", ROLLOUT_TIMEOUT, || async {
                    let log = pm.log();
                    if log.contains("lost the lease") { Ok(()) } else { Err(log) }
                })
                .await;
            }
            true
        }
        () = tokio::time::sleep(ROLLOUT_TIMEOUT) => panic!("{operation:?} at {point}: neither done nor killed"),
    };
    trap.disarm();
    if hit {
        pm = pm.restart().await;
        if sent.is_err() {
            // A client without a response retries.
            retry(&pm, operation, &key, &desired).await;
        }
        wait_done(&pm, operation, &key, &second).await;
    }
    let ids = (format!("{key}.Sample..{one}"), format!("{key}.Sample..{two}"));
    let mark = operation.final_version();
    let prefix = format!("{key}.");
    for (half, id) in [(east, &ids.0), (west, &ids.1)] {
        let expected: Vec<_> = mark.iter().map(|mark| (id.as_str(), *mark)).collect();
        half.exactly(&prefix, &expected).await;
    }
    // There are no units of abandoned plans and no orphans.
    eventually("no orphans and no excess units", ROLLOUT_TIMEOUT, || async {
        let orphans = pm.call(Method::GET, "/orphans", None).await?;
        let status = pm.call(Method::GET, &format!("/deployments/{key}/status"), None).await;
        let units = status.ok().and_then(|it| it["units"].as_array().map(Vec::len));
        let desired = if mark.is_some() { 2 } else { 0 };
        let converged = orphans["items"] == json!([]) && units.unwrap_or_default() == desired;
        if converged { Ok(()) } else { Err(format!("{orphans}, {units:?} units")) }
    })
    .await;
    second.refuse(false);
    pm.call(Method::DELETE, &format!("/deployments/{key}"), None).await.ok();
    pm.wait_deleted(&key).await;
    if hit { Round::Killed } else { Round::Over }
}

async fn send(
    pm: &Pm,
    operation: Operation,
    key: &str,
    desired: &impl Fn(&str) -> Value,
) -> Result<Value, String> {
    if operation == Operation::Delete {
        return pm.call(Method::DELETE, &format!("/deployments/{key}"), None).await;
    }
    pm.deploy(&desired(if operation.creates() { "1.0.0" } else { "2.0.0" })).await
}

/// Retries a request that may have been stored: it is idempotent.
async fn retry(pm: &Pm, operation: Operation, key: &str, desired: &impl Fn(&str) -> Value) {
    eventually("a response", ROLLOUT_TIMEOUT, || async {
        match send(pm, operation, key, desired).await {
            // It may be deleted already.
            Err(error) if operation == Operation::Delete && error.starts_with("404") => Ok(()),
            other => other.map(drop),
        }
    })
    .await;
}

/// Waits for the final condition; the second cluster becomes reachable once the first is done.
async fn wait_done(pm: &Pm, operation: Operation, key: &str, second: &Relay) {
    if operation == Operation::Delete {
        return pm.wait_deleted(key).await;
    }
    let (first, end) = match (operation.is_all_or_nothing(), operation.is_unreachable()) {
        (true, _) => (["ROLLING_BACK", "ROLLED_BACK"], "ROLLED_BACK"),
        (false, true) => (["PARTIAL", "RUNNING"], "RUNNING"),
        (false, false) => (["RUNNING", "RUNNING"], "RUNNING"),
    };
    let is_reached = |status: &Value| {
        let condition = status["condition"].as_str();
        condition.is_some_and(|it| first.contains(&it))
    };
    pm.wait_for(key, first[0], is_reached).await;
    second.away(false);
    pm.wait_for_condition(key, end).await;
}
