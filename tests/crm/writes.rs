//! What a class costs the API server: as few writes as there can be, and nothing while nothing
//! happens.

use std::{collections::BTreeMap, time::Duration};

use oprc_sandbox::proxy::ApiProxy;
use oprc_tests::{
    Place,
    class::{available, deploy, hello, with_odgm},
    crm::{Crm, Options},
    in_namespace, proof as proofs,
};

const USER: &str = "counted";

/// Requests of our CRM by verb and resource, without the lease.
fn requests(proxy: &ApiProxy) -> BTreeMap<(String, String), u64> {
    let all = proxy.counts().into_iter().filter(|((client, ..), _)| client == USER);
    all.map(|((_, verb, resource), count)| ((verb, resource), count))
        .filter(|((_, resource), _)| resource != "leases.coordination.k8s.io")
        .collect()
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
            // The last notice comes after the status that was waited for.
            proxy
                .wait_for(|counts| {
                    let events = |((_, _, resource), count): (&(String, String, String), &u64)| {
                        if resource == "events.events.k8s.io" { *count } else { 0 }
                    };
                    counts.iter().map(events).sum::<u64>() >= 3
                })
                .await;
            let seen = requests(&proxy);
            let count = |such: &dyn Fn(&str, &str) -> bool| -> u64 {
                let found = seen.iter().filter(|((verb, resource), _)| such(verb, resource));
                found.map(|(_, count)| count).sum()
            };
            let is_event = |resource: &str| resource == "events.events.k8s.io";
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

mod proof {
    use super::*;

    #[tokio::test]
    async fn nothing_is_asked_while_nothing_happens() {
        let proof = proofs::begin("idle minutes of CRM", 1, 10);
        let minutes = u64::try_from(proof.rounds).unwrap();
        in_namespace(async |place: &Place| {
            let proxy = ApiProxy::start(&place.cluster).await.unwrap();
            let options = Options::user(USER).through(proxy.url());
            let crm = Crm::start(place, &options).await;
            for name in ["idle-1", "idle-2", "idle-3"] {
                deploy(&crm.client, name, &with_odgm(&[hello("greet")])).await.unwrap();
            }
            for name in ["idle-1", "idle-2", "idle-3"] {
                available(place, name).await;
            }
            // What is on its way may arrive before silence begins.
            tokio::time::sleep(Duration::from_secs(5)).await;
            proxy.reset();
            tokio::time::sleep(Duration::from_mins(minutes)).await;
            let seen = requests(&proxy);
            let others: Vec<_> = seen.keys().filter(|(verb, _)| verb != "watch").collect();
            assert!(others.is_empty(), "{others:?}");
            let watches: u64 = seen.values().sum();
            // Each is opened again after five minutes, and lives on average for less.
            assert!(watches <= 20 * (minutes.div_ceil(4)), "{watches}");
            let seen = format!("{watches} watches reopened, nothing else but the lease");
            proof.held(&seen);
        })
        .await;
    }
}
