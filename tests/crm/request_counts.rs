//! Requests of a CRM, counted by a proxy.

use std::collections::BTreeMap;

use oprc_sandbox::{
    proxy::{ApiProxy, Counts},
    within,
};
use oprc_tests::class::AVAILABLE_TIMEOUT;

pub(crate) const USER: &str = "counted";

pub(crate) const LEASES: &str = "leases.coordination.k8s.io";
pub(crate) const EVENTS: &str = "events.events.k8s.io";

/// How many requests there were by verb and resource.
pub(crate) type Requests = BTreeMap<(String, String), u64>;

/// Requests of our CRM, without the lease.
pub(crate) fn requests(proxy: &ApiProxy) -> Requests {
    let all = proxy.counts().into_iter().filter(|((client, ..), _)| client == USER);
    all.map(|((_, verb, resource), count)| ((verb, resource), count))
        .filter(|((_, resource), _)| resource != LEASES)
        .collect()
}

/// How many requests of our CRM there were, but for the lease and watches.
pub(crate) fn request_count(counts: &Counts) -> u64 {
    let such = counts.iter().filter(|((client, verb, resource), _)| {
        client == USER && verb != "watch" && resource != LEASES
    });
    such.map(|(_, count)| count).sum()
}

/// How many Events of our CRM have arrived.
fn events(counts: &Counts) -> u64 {
    let told =
        counts.iter().filter(|((client, _, resource), _)| client == USER && resource == EVENTS);
    told.map(|(_, count)| count).sum()
}

/// Waits until so many Events of our CRM have arrived.
pub(crate) async fn wait_for_events(proxy: &ApiProxy, count: u64) {
    let waiting = async {
        proxy.wait_for(|counts| events(counts) >= count).await;
        Ok::<_, String>(())
    };
    within(&format!("{count} Events"), AVAILABLE_TIMEOUT, waiting).await.unwrap();
}
