//! A package manager that is killed at each point of what it does: before and after each call that
//! changes something, in a cluster or in its store. Whoever asked asks again; the end is the same.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use hyper::Method;
use oprc_tests::{
    etcd::Etcd,
    eventually,
    pm::{Pm, SETTLED, Setup, deployment, package},
    relay::{Relay, Trap},
};
use serde_json::{Value, json};

use crate::pair::Half;

/// How long after the last call nothing more comes: what waits longest is the record of a unit that
/// is gone, in case a call of before is still under way.
const QUIET: Duration = Duration::from_secs(20);

/// What is done while it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// A new deployment.
    Create,
    /// Another version of one that runs.
    Update,
    /// One that runs is taken away.
    Delete,
    /// A new one of all or nothing, which the second cluster refuses.
    CreateRefused,
    /// Another version of one of all or nothing, which the second cluster refuses.
    UpdateRefused,
}

pub(crate) const ACTS: [Act; 5] =
    [Act::Create, Act::Update, Act::Delete, Act::CreateRefused, Act::UpdateRefused];

/// What came of one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// It was killed there, and ended as it should.
    Killed,
    /// It was done before it came to that point.
    Over,
}

/// Does something, kills the package manager at a point of it, and looks what becomes of it.
pub(crate) async fn round(
    east: &Half<'_>,
    west: &Half<'_>,
    etcd: &Etcd,
    act: Act,
    point: usize,
) -> Round {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    // Others share the clusters: each knows them by names of its own.
    let (one, two) = (format!("east-{number}"), format!("west-{number}"));
    let trap = Trap::default();
    let first = Relay::start(&east.crm.url, &trap).await;
    let second = Relay::start(&west.crm.url, &trap).await;
    let store = Relay::start(&etcd.endpoint(), &trap).await;
    let setup =
        Setup::of([(one.as_str(), first.url.as_str()), (two.as_str(), second.url.as_str())])
            .in_etcd(&store.url, &format!("round-{number}"))
            .with("OPRC_PM_STORE_ETCD_LEASE", "20s");
    let mut pm = Pm::start(&setup).await;
    for version in ["1.0.0", "2.0.0"] {
        pm.publish(&package(version)).await;
    }
    let key = format!("d{number}");
    let refused = matches!(act, Act::CreateRefused | Act::UpdateRefused);
    let wanted = |version: &str| {
        let mut wanted = deployment(&key, version);
        wanted["targetClusters"] = json!([one, two]);
        wanted["policy"] = if refused { "ALL_OR_NOTHING" } else { "BEST_EFFORT" }.into();
        wanted
    };
    for cluster in [&one, &two] {
        pm.cluster(cluster, "HEALTHY").await;
    }
    if !matches!(act, Act::Create | Act::CreateRefused) {
        pm.deploy(&wanted("1.0.0")).await.unwrap();
        pm.condition(&key, "RUNNING").await;
    }
    second.refuse(refused);
    trap.arm(point, pm.killer());
    let asked = ask(&pm, act, &key, &wanted).await;
    let hit = tokio::select! {
        () = trap.sprung() => true,
        () = done(&pm, act, &key), if asked.is_ok() => {
            // Something may still be stored.
            tokio::time::timeout(QUIET, trap.sprung()).await.is_ok()
        }
        () = pm.ended() => {
            // On a machine that is busy it may lose its lease, and ends by itself: the same must come
            // of it. Nothing else may end it.
            if tokio::time::timeout(QUIET, trap.sprung()).await.is_err() {
                eventually("why it has ended", SETTLED, || async {
                    let log = pm.log();
                    if log.contains("wasn't renewed in time") { Ok(()) } else { Err(log) }
                })
                .await;
            }
            true
        }
        () = tokio::time::sleep(SETTLED) => panic!("{act:?} at {point}: neither done nor killed"),
    };
    trap.disarm();
    if hit {
        pm = pm.restart().await;
        if asked.is_err() {
            // Whoever wasn't answered asks again.
            again(&pm, act, &key, &wanted).await;
        }
        done(&pm, act, &key).await;
    }
    let ids = (format!("{key}.Sample..{one}"), format!("{key}.Sample..{two}"));
    let mark = match act {
        Act::Create | Act::UpdateRefused => Some("1.0.0"),
        Act::Update => Some("2.0.0"),
        Act::Delete | Act::CreateRefused => None,
    };
    let prefix = format!("{key}.");
    for (half, id) in [(east, &ids.0), (west, &ids.1)] {
        let expected: Vec<_> = mark.iter().map(|mark| (id.as_str(), *mark)).collect();
        half.exactly(&prefix, &expected).await;
    }
    // Nothing is left of what was given up, and nothing is there that isn't known.
    eventually("no orphan and no unit too many", SETTLED, || async {
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
    pm.gone(&key).await;
    if hit { Round::Killed } else { Round::Over }
}

async fn ask(
    pm: &Pm,
    act: Act,
    key: &str,
    wanted: &impl Fn(&str) -> Value,
) -> Result<Value, String> {
    match act {
        Act::Create | Act::CreateRefused => pm.deploy(&wanted("1.0.0")).await,
        Act::Update | Act::UpdateRefused => pm.deploy(&wanted("2.0.0")).await,
        Act::Delete => pm.call(Method::DELETE, &format!("/deployments/{key}"), None).await,
    }
}

/// Asks again for what may have been stored before: it is harmless.
async fn again(pm: &Pm, act: Act, key: &str, wanted: &impl Fn(&str) -> Value) {
    eventually("an answer", SETTLED, || async {
        match ask(pm, act, key, wanted).await {
            // What is to be deleted may be gone already.
            Err(error) if act == Act::Delete && error.starts_with("404") => Ok(()),
            other => other.map(drop),
        }
    })
    .await;
}

/// Waits until it is as it should be.
async fn done(pm: &Pm, act: Act, key: &str) {
    match act {
        Act::Create | Act::Update => drop(pm.condition(key, "RUNNING").await),
        Act::CreateRefused | Act::UpdateRefused => drop(pm.condition(key, "ROLLED_BACK").await),
        Act::Delete => pm.gone(key).await,
    }
}
