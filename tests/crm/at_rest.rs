//! An idle CRM sends no requests. This test takes a minute, so its name makes it start first.

mod proof {
    use std::time::Duration;

    use oprc_sandbox::proxy::ApiProxy;
    use oprc_tests::{
        TestNamespace,
        class::{calls_once, deploy, hello, spec_of, url, wait_available, with_odgm},
        crm::{Crm, Options},
        in_namespace, proof,
    };
    use serde_json::json;

    use crate::request_counts::{LEASES, Requests, USER, request_count, requests, wait_for_events};

    /// The lease is renewed every five seconds, with one more at either end. A busy machine causes
    /// retries.
    const RENEWALS: u64 = 13 + 7;
    /// After this time without a request everything has been reported.
    const IDLE_TIME: Duration = Duration::from_secs(3);
    /// Attempts to reach that; a CRM that never becomes idle fails afterwards.
    const MAX_ATTEMPTS: usize = 50;
    /// How often a sample may be repeated. Unnecessary requests occur each time.
    const MAX_REPEATS: usize = 2;

    /// Waits until CRM is idle, and returns the requests of the following minutes.
    async fn idle(proxy: &ApiProxy, minutes: u64) -> Requests {
        for _ in 0..MAX_ATTEMPTS {
            proxy.reset();
            let more = proxy.wait_for(|counts| request_count(counts) > 0);
            if tokio::time::timeout(IDLE_TIME, more).await.is_err() {
                break;
            }
        }
        proxy.reset();
        tokio::time::sleep(Duration::from_mins(minutes)).await;
        requests(proxy)
    }

    fn requests_but_watches(seen: &Requests) -> Vec<&(String, String)> {
        seen.keys().filter(|(verb, _)| verb != "watch").collect()
    }

    #[tokio::test]
    async fn sends_no_requests_while_idle() {
        let proof = proof::begin("idle CRM, in minutes", 1, 10);
        let minutes = u64::try_from(proof.rounds).unwrap();
        in_namespace(async |ns: &TestNamespace| {
            let proxy = ApiProxy::start(&ns.cluster).await.unwrap();
            let options = Options::user(USER).through(proxy.url());
            let crm = Crm::start(ns, &options).await;
            for name in ["idle-1", "idle-2", "idle-3"] {
                deploy(&crm.client, name, &with_odgm(&[hello("greet")])).await.unwrap();
            }
            for name in ["idle-1", "idle-2", "idle-3"] {
                wait_available(ns, name).await;
            }
            let target = url(&wait_available(ns, "idle-1").await, "greet");
            let mut run = spec_of(&[calls_once("ask", &target)]);
            run["selected_template"] = json!("job");
            deploy(&crm.client, "ran", &run).await.unwrap();
            wait_available(ns, "ran").await;
            // The last Event of each class is Available.
            wait_for_events(&proxy, 12).await;
            let mut seen = idle(&proxy, minutes).await;
            let repeats = if proof::whole() { 0 } else { MAX_REPEATS };
            for _ in 0..repeats {
                if !requests_but_watches(&seen).is_empty() {
                    println!("repeated: {seen:?}");
                    seen = idle(&proxy, minutes).await;
                }
            }
            assert!(requests_but_watches(&seen).is_empty(), "{seen:?}");
            let renewals: u64 = proxy
                .counts()
                .iter()
                .filter(|((client, _, resource), _)| client == USER && resource == LEASES)
                .map(|(_, count)| count)
                .sum();
            assert!((1..=RENEWALS * minutes).contains(&renewals), "{renewals} requests for leases");
            let watches: u64 = seen.values().sum();
            // Each watch is reopened within five minutes, an inactive one within two.
            assert!(watches <= 20 * (minutes.div_ceil(4)), "{watches}");
            let seen =
                format!("{watches} watches reopened, {renewals} lease requests, no other requests");
            proof.held(&seen);
        })
        .await;
    }
}
