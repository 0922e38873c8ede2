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

/// Numbers of requests by verb and resource.
pub(crate) type Requests = BTreeMap<(String, String), u64>;

/// Requests of CRM except for the lease.
pub(crate) fn requests(proxy: &ApiProxy) -> Requests {
    let all = proxy.counts().into_iter().filter(|((client, ..), _)| client == USER);
    all.map(|((_, verb, resource), count)| ((verb, resource), count))
        .filter(|((_, resource), _)| resource != LEASES)
        .collect()
}

/// Number of CRM's requests except watches and the lease.
pub(crate) fn request_count(counts: &Counts) -> u64 {
    let matching = counts.iter().filter(|((client, verb, resource), _)| {
        client == USER && verb != "watch" && resource != LEASES
    });
    matching.map(|(_, count)| count).sum()
}

/// Number of Events that CRM created.
fn events(counts: &Counts) -> u64 {
    let matching =
        counts.iter().filter(|((client, _, resource), _)| client == USER && resource == EVENTS);
    matching.map(|(_, count)| count).sum()
}

pub(crate) async fn wait_for_events(proxy: &ApiProxy, count: u64) {
    let waiting = async {
        proxy.wait_for(|counts| events(counts) >= count).await;
        Ok::<_, String>(())
    };
    within(&format!("{count} Events"), AVAILABLE_TIMEOUT, waiting).await.unwrap();
}
