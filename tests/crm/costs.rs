//! What a class costs the API server: as few writes as there can be.

use std::{collections::BTreeMap, time::Duration};

use oprc_sandbox::{
    proxy::{ApiProxy, Counts},
    within,
};
use oprc_tests::{
    Place,
    class::{AVAILABLE, available, deploy, hello, with_odgm},
    crm::{Crm, Options},
    in_namespace,
};

pub(crate) const USER: &str = "counted";

pub(crate) const LEASES: &str = "leases.coordination.k8s.io";
const EVENTS: &str = "events.events.k8s.io";
/// How long one looks for more than there should be.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// Requests of our CRM by verb and resource, without the lease.
pub(crate) fn requests(proxy: &ApiProxy) -> BTreeMap<(String, String), u64> {
    let all = proxy.counts().into_iter().filter(|((client, ..), _)| client == USER);
    all.map(|((_, verb, resource), count)| ((verb, resource), count))
        .filter(|((_, resource), _)| resource != LEASES)
        .collect()
}

/// How many Events of our CRM have arrived.
fn events(counts: &Counts) -> u64 {
    let told =
        counts.iter().filter(|((client, _, resource), _)| client == USER && resource == EVENTS);
    told.map(|(_, count)| count).sum()
}

/// Waits until so many Events of our CRM have arrived.
pub(crate) async fn told(proxy: &ApiProxy, count: u64) {
    let waiting = async {
        proxy.wait_for(|counts| events(counts) >= count).await;
        Ok::<_, String>(())
    };
    within(&format!("{count} Events"), AVAILABLE, waiting).await.unwrap();
}

fn is_write(verb: &str) -> bool {
    matches!(verb, "create" | "update" | "patch" | "delete" | "deletecollection")
}

#[tokio::test]
async fn a_class_of_n_functions_with_a_data_grid_takes_two_n_plus_five_writes() {
    in_namespace(async |place: &Place| {
        let proxy = ApiProxy::start(&place.cluster).await.unwrap();
        let options = Options::user(USER).through(proxy.url());
        let crm = Crm::start(place, &options).await;
        for n in 1..=3_u64 {
            proxy.reset();
            let functions: Vec<_> = (0..n).map(|at| hello(&format!("f{at}"))).collect();
            let name = format!("counted-{n}");
            deploy(&crm.client, &name, &with_odgm(&functions)).await.unwrap();
            available(place, &name).await;
            // The last notice comes after the status that was waited for, and what is more than
            // there should be comes after that.
            told(&proxy, 3).await;
            tokio::time::sleep(AFTERWARDS).await;
            let seen = requests(&proxy);
            let count = |such: &dyn Fn(&str, &str) -> bool| -> u64 {
                let found = seen.iter().filter(|((verb, resource), _)| such(verb, resource));
                found.map(|(_, count)| count).sum()
            };
            let is_event = |resource: &str| resource == EVENTS;
            let writes = count(&|verb, resource| is_write(verb) && !is_event(resource));
            let events = count(&|verb, resource| is_write(verb) && is_event(resource));
            let reads = count(&|verb, _| matches!(verb, "get" | "list"));
            assert_eq!(writes, 2 * n + 5, "{seen:#?}");
            assert!(events <= 3, "{seen:#?}");
            assert_eq!(reads, 0, "{seen:#?}");
        }
    })
    .await;
}
