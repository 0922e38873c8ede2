//! The API server is stopped, returns errors, or hangs: CRM stays up, marks reads as stale, rejects
//! writes, and recovers.

use std::time::{Duration, Instant};

use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use oprc_grpc::deployment::{
    DeleteDeploymentRequest, GetDeploymentStatusRequest, ListClassRuntimesRequest,
    deployment_service_client::DeploymentServiceClient,
};
use oprc_sandbox::{
    proxy::{ApiProxy, Fault, Match},
    supervisor::Action,
};
use oprc_tests::{
    TestNamespace,
    class::{deploy, hello, request, spec_of, wait_available},
    crm::{Crm, Options},
    eventually,
    http::get_ok,
    proof as proofs,
};
use tonic::{Code, Request};

use crate::{
    in_own_real_cluster, in_shared_cluster, is_ready,
    request_counts::{count, requests_of, watched},
};

/// Bound on recovery.
const RECOVERY_TIMEOUT: Duration = Duration::from_mins(3);
/// Bounds on the detection of errors, and of missing responses.
const ERROR_DETECTION_TIMEOUT: Duration = Duration::from_secs(30);
const HANG_DETECTION_TIMEOUT: Duration = Duration::from_mins(1);
/// Bound on reads, below the timeout of clients.
const READ_TIMEOUT: Duration = Duration::from_secs(9);
/// The deadline of callers, and the tolerance on top of it.
const DEADLINE: Duration = Duration::from_secs(3);
const SLACK: Duration = Duration::from_secs(6);
/// Codes for callers with a short deadline.
const REJECTION_CODES: [Code; 2] = [Code::Unavailable, Code::DeadlineExceeded];
/// Requests that a CRM may need to catch up: its watches and a few classes.
const CATCH_UP: u64 = 150;

/// Reads an Available class by both calls, and returns whether both are stale.
async fn read(crm: &Crm) -> Result<bool, String> {
    let started = Instant::now();
    let message =
        GetDeploymentStatusRequest { deployment_id: "before".into(), ..Default::default() };
    let one = crm.client.clone().get_deployment_status(message).await;
    let one = one.map_err(|status| status.to_string())?.into_inner();
    let all = crm.client.clone().list_class_runtimes(ListClassRuntimesRequest::default()).await;
    let all = all.map_err(|status| status.to_string())?.into_inner();
    assert!(started.elapsed() <= READ_TIMEOUT, "reads took {:?}", started.elapsed());
    assert!(!all.class_runtimes.is_empty());
    let phase = one.class_runtime.unwrap().status.unwrap().phase;
    if phase != "Available" {
        return Err(phase);
    }
    if one.stale == all.stale {
        Ok(one.stale)
    } else {
        Err("one read is stale, the other isn't".to_owned())
    }
}

/// Waits until reads are marked as stale, or not any more.
async fn wait_marked_stale(crm: &Crm, stale: bool, limit: Duration) {
    eventually(&format!("reads to be marked stale={stale}"), limit, || async {
        if read(crm).await? == stale { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
}

/// A client without a deadline of its own, so that the server enforces it.
fn client_without_deadline(
    crm: &Crm,
) -> DeploymentServiceClient<HttpClient<HttpConnector, tonic::body::Body>> {
    let http = HttpClient::builder(TokioExecutor::new()).http2_only(true).build_http();
    DeploymentServiceClient::with_origin(http, crm.url.parse().unwrap())
}

/// Asserts that writes fail within their deadline.
async fn assert_writes_fail(crm: &Crm) {
    let mut client = client_without_deadline(crm);
    let started = Instant::now();
    let mut deployment = Request::new(request("during", &spec_of(&[hello("greet")])));
    deployment.set_timeout(DEADLINE);
    let status = client.deploy(deployment).await.unwrap_err();
    assert!(REJECTION_CODES.contains(&status.code()), "{status:?}");
    assert!(started.elapsed() <= DEADLINE + SLACK, "{:?}", started.elapsed());
    let started = Instant::now();
    let message =
        DeleteDeploymentRequest { deployment_id: "before".into(), namespace: String::new() };
    let mut deletion = Request::new(message);
    deletion.set_timeout(DEADLINE);
    let status = client.delete_deployment(deletion).await.unwrap_err();
    assert!(REJECTION_CODES.contains(&status.code()), "{status:?}");
    assert!(started.elapsed() <= DEADLINE + SLACK, "{:?}", started.elapsed());
    // Callers with a long deadline get the cause.
    let started = Instant::now();
    let status = deploy(&crm.client, "during", &spec_of(&[hello("greet")])).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?} after {:?}", started.elapsed());
    get_ok(&format!("{}/health/live", crm.url)).await.unwrap();
}

/// Waits until writes succeed again and are reconciled.
async fn wait_recovered(ns: &TestNamespace, crm: &Crm, name: &str) {
    wait_marked_stale(crm, false, RECOVERY_TIMEOUT).await;
    eventually("writes to be accepted", RECOVERY_TIMEOUT, || async {
        let accepted = deploy(&crm.client, name, &spec_of(&[hello("greet")])).await;
        accepted.map_err(|status| status.to_string())
    })
    .await;
    wait_available(ns, name).await;
}

mod proof {
    use super::*;

    #[tokio::test]
    async fn survives_a_stopped_api_server() {
        let proof = proofs::begin("API server stopped, in units of 10 s", 1, 6);
        let away = Duration::from_secs(10 * u64::try_from(proof.rounds).unwrap());
        in_own_real_cluster("test-outage", async |ns: &TestNamespace| {
            let crm = Crm::start(ns, &Options::default()).await;
            deploy(&crm.client, "before", &spec_of(&[hello("greet")])).await.unwrap();
            wait_available(ns, "before").await;
            wait_marked_stale(&crm, false, ERROR_DETECTION_TIMEOUT).await;

            ns.cluster.supervisor().act("kube-apiserver", Action::Stop).await.unwrap();
            let end = tokio::time::Instant::now() + away;
            wait_marked_stale(&crm, true, ERROR_DETECTION_TIMEOUT).await;
            assert_writes_fail(&crm).await;
            tokio::time::sleep_until(end).await;
            assert_eq!(read(&crm).await, Ok(true));

            ns.cluster.supervisor().act("kube-apiserver", Action::Start).await.unwrap();
            eventually("the API server", RECOVERY_TIMEOUT, || is_ready(ns)).await;
            let before = requests_of(&crm.url).await;
            wait_recovered(ns, &crm, "after").await;
            let storm = requests_of(&crm.url).await - before;
            assert!(storm < CATCH_UP, "{storm} requests to catch up");
        })
        .await;
        proof.held(&format!(
            "{} s without an API server: reads were served from the cache, writes failed, CRM \
             recovered",
            away.as_secs()
        ));
    }

    #[tokio::test]
    async fn survives_an_api_server_that_returns_errors() {
        let proof = proofs::begin("API server returns 500 and 503, in units of 10 s", 1, 6);
        let duration = Duration::from_secs(10 * u64::try_from(proof.rounds).unwrap());
        in_shared_cluster(async |ns: &TestNamespace| {
            let proxy = ApiProxy::start(&ns.cluster).await.unwrap();
            let crm = Crm::start(ns, &Options::user("erring").through(proxy.url())).await;
            deploy(&crm.client, "before", &spec_of(&[hello("greet")])).await.unwrap();
            wait_available(ns, "before").await;
            let watches = u64::try_from(watched(&proxy.counts(), "erring").len()).unwrap();
            for code in [500, 503] {
                wait_marked_stale(&crm, false, ERROR_DETECTION_TIMEOUT).await;
                proxy.reset();
                let everything = || Match::any().client("erring");
                let errors = proxy.inject(everything(), Fault::Status(code, None));
                // Open watches aren't affected by the fault.
                let cut = proxy.inject(everything().verb("watch"), Fault::DropResponse);
                let end = tokio::time::Instant::now() + duration;
                wait_marked_stale(&crm, true, ERROR_DETECTION_TIMEOUT).await;
                assert_writes_fail(&crm).await;
                tokio::time::sleep_until(end).await;
                assert_eq!(read(&crm).await, Ok(true));
                let counts = proxy.counts();
                let sent = count(&counts, "erring", "", "");
                // A dozen quick retries each, and then one every few seconds.
                let bound = (watches + 3) * (12 + duration.as_secs() / 3);
                assert!(sent <= bound, "{sent} requests, at most {bound}: {counts:#?}");
                proxy.reset();
                drop((errors, cut));
                wait_recovered(ns, &crm, &format!("after-{code}")).await;
                let storm = count(&proxy.counts(), "erring", "", "");
                assert!(storm < CATCH_UP, "{storm} requests to catch up");
            }
        })
        .await;
        proof.held(&format!(
            "{} s of each: reads were served from the cache, writes failed, CRM recovered",
            duration.as_secs()
        ));
    }

    #[tokio::test]
    async fn survives_an_api_server_that_hangs() {
        let proof = proofs::begin("API server hangs, in units of 10 s", 3, 6);
        let duration = Duration::from_secs(10 * u64::try_from(proof.rounds).unwrap());
        in_shared_cluster(async |ns: &TestNamespace| {
            let proxy = ApiProxy::start(&ns.cluster).await.unwrap();
            let start =
                async |user| Crm::start(ns, &Options::user(user).through(proxy.url())).await;
            let leader = start("hanging").await;
            deploy(&leader.client, "before", &spec_of(&[hello("greet")])).await.unwrap();
            wait_available(ns, "before").await;
            // A replica that isn't the leader sends fewer requests.
            let other = start("waiting").await;
            wait_marked_stale(&leader, false, ERROR_DETECTION_TIMEOUT).await;
            wait_marked_stale(&other, false, ERROR_DETECTION_TIMEOUT).await;
            let hung = ["hanging", "waiting"]
                .map(|user| proxy.inject(Match::any().client(user), Fault::Hold));
            let end = tokio::time::Instant::now() + duration;
            tokio::join!(
                wait_marked_stale(&leader, true, HANG_DETECTION_TIMEOUT),
                wait_marked_stale(&other, true, HANG_DETECTION_TIMEOUT)
            );
            tokio::join!(assert_writes_fail(&leader), assert_writes_fail(&other));
            tokio::time::sleep_until(end).await;
            assert_eq!(read(&leader).await, Ok(true));
            assert_eq!(read(&other).await, Ok(true));
            proxy.reset();
            drop(hung);
            tokio::join!(
                wait_recovered(ns, &leader, "after"),
                wait_recovered(ns, &other, "after-too")
            );
            for user in ["hanging", "waiting"] {
                let storm = count(&proxy.counts(), user, "", "");
                assert!(storm < CATCH_UP, "{user}: {storm} requests to catch up");
            }
        })
        .await;
        proof.held(&format!(
            "{} s without a response: reads were served from the cache, writes failed within their \
             deadline, CRM recovered",
            duration.as_secs()
        ));
    }
}
