//! The API server rejects CRM's writes, or its responses are lost: CRM succeeds without a request
//! storm.

use std::time::{Duration, Instant};

use oprc_sandbox::proxy::{ApiProxy, Fault, Match};
use oprc_tests::{
    TestNamespace,
    class::{deploy, hello, list_objects, spec_of, wait_available},
    crm::{Crm, Options},
};

use crate::{
    in_shared_cluster,
    request_counts::{count, wait_for_counts},
};

const DEPLOYMENTS: &str = "deployments.apps";
const STATUSES: &str = "classruntimes.oaas.io/status";
/// Status writes of a class that becomes Available: one for the rollout and one for its end.
const STATUS_WRITES: u64 = 2;
/// Other writes of a new class: itself and a Service.
const OTHER_WRITES: u64 = 2;
/// Repeated failures are reported in status, and so is recovery. A write without a response may be
/// repeated.
const FAILURE_STATUS_WRITES: u64 = 4;
/// Events of a new class and of failures, and the last one of the former class, which follows its
/// status.
const MAX_EVENTS: u64 = 10;
/// Health checks of the API server during some seconds of failures.
const HEALTH_CHECKS: u64 = 10;

#[tokio::test]
async fn retries_failed_writes_without_a_request_storm() {
    in_shared_cluster(async |ns: &TestNamespace| {
        let proxy = ApiProxy::start(&ns.cluster).await.unwrap();
        // Requests for the lease don't count here.
        let alone = ("OPRC_CRM_FEATURES_LEADER_ELECTION", "false");
        let options = Options::user("tried").through(proxy.url()).with(alone.0, alone.1);
        let crm = Crm::start(ns, &options).await;
        let writes = || Match::any().client("tried").verb("patch");
        let faults = [
            ("409 once", Fault::Status(409, None), 1),
            ("409 five times", Fault::Status(409, None), 5),
            ("429 with Retry-After", Fault::Status(429, Some(1)), 3),
            ("500", Fault::Status(500, None), 4),
            ("503", Fault::Status(503, None), 4),
            ("request dropped", Fault::DropRequest, 3),
            ("response dropped", Fault::DropResponse, 3),
        ];
        for (at, (what, fault, times)) in faults.into_iter().enumerate() {
            let name = format!("tried-{at}");
            proxy.reset();
            // Only writes of the reconciler: callers get errors and retry themselves.
            let injected = proxy.inject_times(writes().resource(DEPLOYMENTS), fault.clone(), times);
            let also = proxy.inject_times(writes().resource(STATUSES), fault, times);
            deploy(&crm.client, &name, &spec_of(&[hello("greet")])).await.unwrap();
            let status = wait_available(ns, &name).await;
            assert_eq!(status.ready.as_deref(), Some("1/1"), "{what}");
            drop((injected, also));
            let counts = proxy.counts();
            // Each failure costs one more request.
            let deployments = count(&counts, "tried", "patch", DEPLOYMENTS);
            assert!(deployments <= 1 + times, "{what}: {counts:#?}");
            let statuses = count(&counts, "tried", "patch", STATUSES);
            assert!(
                statuses <= STATUS_WRITES + FAILURE_STATUS_WRITES + times,
                "{what}: {counts:#?}"
            );
            // After a missing response CRM checks the API server's health.
            let health_checks = count(&counts, "tried", "get", "/version");
            assert!(health_checks <= HEALTH_CHECKS, "{what}: {counts:#?}");
            let reads = count(&counts, "tried", "get", "") + count(&counts, "tried", "list", "");
            assert_eq!(reads, health_checks, "{what}: {counts:#?}");
            let events = count(&counts, "tried", "", "events.events.k8s.io");
            let watched = count(&counts, "tried", "watch", "events.events.k8s.io");
            assert!(events - watched <= MAX_EVENTS, "{what}: {counts:#?}");
            let watches = count(&counts, "tried", "watch", "");
            let known = deployments + statuses + events + watches + health_checks - watched;
            let rest = count(&counts, "tried", "", "") - known;
            assert!(rest <= OTHER_WRITES, "{what}: {counts:#?}");
        }
        let objects = list_objects(ns).await;
        let deployments = objects.iter().filter(|name| name.starts_with("Deployment/")).count();
        assert_eq!(deployments, 7, "{objects:?}");
    })
    .await;
}

/// CRM doesn't retry before `Retry-After`.
#[tokio::test]
async fn respects_retry_after() {
    const TIMES: u64 = 2;
    const RETRY_AFTER_SECS: u32 = 2;
    // Delay until this test observes a request.
    const OBSERVATION_DELAY: Duration = Duration::from_millis(200);
    in_shared_cluster(async |ns: &TestNamespace| {
        let proxy = ApiProxy::start(&ns.cluster).await.unwrap();
        let crm = Crm::start(ns, &Options::user("patient").through(proxy.url())).await;
        let writes = Match::any().client("patient").verb("patch").resource(DEPLOYMENTS);
        let _injected =
            proxy.inject_times(writes, Fault::Status(429, Some(RETRY_AFTER_SECS)), TIMES);
        let attempts = async {
            let mut times: Vec<Instant> = Vec::new();
            for number in 1..=TIMES + 1 {
                let limit = Duration::from_mins(2);
                let seen = wait_for_counts(&proxy, "the next attempt", limit, |counts| {
                    count(counts, "patient", "patch", DEPLOYMENTS) >= number
                });
                times.push(seen.await);
            }
            times
        };
        let spec = spec_of(&[hello("greet")]);
        let (times, deployed) = tokio::join!(attempts, deploy(&crm.client, "patient", &spec));
        deployed.unwrap();
        for pair in times.windows(2) {
            let waited = pair[1] - pair[0];
            assert!(
                waited + OBSERVATION_DELAY >= Duration::from_secs(RETRY_AFTER_SECS.into()),
                "{waited:?}"
            );
        }
        wait_available(ns, "patient").await;
    })
    .await;
}
