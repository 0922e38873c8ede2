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
const AFTER: Duration = Duration::from_mins(3);
/// Bounds on the detection of errors, and of missing responses.
const NOTICED: Duration = Duration::from_secs(30);
const MISSED: Duration = Duration::from_mins(1);
/// Bound on reads, below the timeout of clients.
const READ: Duration = Duration::from_secs(9);
/// The deadline of callers, and the tolerance on top of it.
const DEADLINE: Duration = Duration::from_secs(3);
const SLACK: Duration = Duration::from_secs(6);
/// Codes for callers with a short deadline.
const REFUSED: [Code; 2] = [Code::Unavailable, Code::DeadlineExceeded];
/// Requests that a CRM may need to catch up: its watches and a few classes.
const CATCH_UP: u64 = 150;

/// Reads an Available class by both calls, and returns whether both are stale.
async fn read(crm: &Crm) -> Result<bool, String> {
    let begun = Instant::now();
    let asked = GetDeploymentStatusRequest { deployment_id: "before".into(), ..Default::default() };
    let one = crm.client.clone().get_deployment_status(asked).await;
    let one = one.map_err(|status| status.to_string())?.into_inner();
    let all = crm.client.clone().list_class_runtimes(ListClassRuntimesRequest::default()).await;
    let all = all.map_err(|status| status.to_string())?.into_inner();
    assert!(begun.elapsed() <= READ, "reads took {:?}", begun.elapsed());
    assert!(!all.class_runtimes.is_empty());
    let phase = one.class_runtime.unwrap().status.unwrap().phase;
    if phase != "Available" {
        return Err(phase);
    }
    if one.stale == all.stale { Ok(one.stale) } else { Err("they don't agree".to_owned()) }
}

/// Waits until reads are marked as stale, or not any more.
async fn marked(crm: &Crm, stale: bool, limit: Duration) {
    eventually(&format!("reads to be marked stale={stale}"), limit, || async {
        if read(crm).await? == stale { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
}

/// A client without a deadline of its own, so that the server enforces it.
fn trusting(crm: &Crm) -> DeploymentServiceClient<HttpClient<HttpConnector, tonic::body::Body>> {
    let http = HttpClient::builder(TokioExecutor::new()).http2_only(true).build_http();
    DeploymentServiceClient::with_origin(http, crm.url.parse().unwrap())
}

/// Asserts that writes fail within their deadline.
async fn refused(crm: &Crm) {
    let mut client = trusting(crm);
    let begun = Instant::now();
    let mut deployment = Request::new(request("during", &spec_of(&[hello("greet")])));
    deployment.set_timeout(DEADLINE);
    let status = client.deploy(deployment).await.unwrap_err();
    assert!(REFUSED.contains(&status.code()), "{status:?}");
    assert!(begun.elapsed() <= DEADLINE + SLACK, "{:?}", begun.elapsed());
    let begun = Instant::now();
    let asked =
        DeleteDeploymentRequest { deployment_id: "before".into(), namespace: String::new() };
    let mut deletion = Request::new(asked);
    deletion.set_timeout(DEADLINE);
    let status = client.delete_deployment(deletion).await.unwrap_err();
    assert!(REFUSED.contains(&status.code()), "{status:?}");
    assert!(begun.elapsed() <= DEADLINE + SLACK, "{:?}", begun.elapsed());
    // Callers with a long deadline get the cause.
    let begun = Instant::now();
    let status = deploy(&crm.client, "during", &spec_of(&[hello("greet")])).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?} after {:?}", begun.elapsed());
    get_ok(&format!("{}/health/live", crm.url)).await.unwrap();
}

/// Waits until writes succeed again and are reconciled.
async fn recovered(ns: &TestNamespace, crm: &Crm, name: &str) {
    marked(crm, false, AFTER).await;
    eventually("writes to be taken again", AFTER, || async {
        let taken = deploy(&crm.client, name, &spec_of(&[hello("greet")])).await;
        taken.map_err(|status| status.to_string())
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
            marked(&crm, false, NOTICED).await;

            ns.cluster.supervisor().act("kube-apiserver", Action::Stop).await.unwrap();
            let end = tokio::time::Instant::now() + away;
            marked(&crm, true, NOTICED).await;
            refused(&crm).await;
            tokio::time::sleep_until(end).await;
            assert_eq!(read(&crm).await, Ok(true));

            ns.cluster.supervisor().act("kube-apiserver", Action::Start).await.unwrap();
            eventually("the API server", AFTER, || is_ready(ns)).await;
            let before = requests_of(&crm.url).await;
            recovered(ns, &crm, "after").await;
            let storm = requests_of(&crm.url).await - before;
            assert!(storm < CATCH_UP, "{storm} requests to catch up");
        })
        .await;
        proof.held(&format!(
            "{} s without an API server: stale reads, rejected writes, recovered",
            away.as_secs()
        ));
    }

    #[tokio::test]
    async fn survives_an_api_server_that_returns_errors() {
        let proof = proofs::begin("API server returns 500 and 503, in units of 10 s", 1, 6);
        let lasting = Duration::from_secs(10 * u64::try_from(proof.rounds).unwrap());
        in_shared_cluster(async |ns: &TestNamespace| {
            let proxy = ApiProxy::start(&ns.cluster).await.unwrap();
            let crm = Crm::start(ns, &Options::user("erring").through(proxy.url())).await;
            deploy(&crm.client, "before", &spec_of(&[hello("greet")])).await.unwrap();
            wait_available(ns, "before").await;
            let watches = u64::try_from(watched(&proxy.counts(), "erring").len()).unwrap();
            for code in [500, 503] {
                marked(&crm, false, NOTICED).await;
                proxy.reset();
                let everything = || Match::any().client("erring");
                let errors = proxy.inject(everything(), Fault::Status(code, None));
                // Open watches aren't affected by the fault.
                let cut = proxy.inject(everything().verb("watch"), Fault::DropResponse);
                let end = tokio::time::Instant::now() + lasting;
                marked(&crm, true, NOTICED).await;
                refused(&crm).await;
                tokio::time::sleep_until(end).await;
                assert_eq!(read(&crm).await, Ok(true));
                let counts = proxy.counts();
                let asked = count(&counts, "erring", "", "");
                // A dozen quick retries each, and then one every few seconds.
                let bound = (watches + 3) * (12 + lasting.as_secs() / 3);
                assert!(asked <= bound, "{asked} requests, at most {bound}: {counts:#?}");
                proxy.reset();
                drop((errors, cut));
                recovered(ns, &crm, &format!("after-{code}")).await;
                let storm = count(&proxy.counts(), "erring", "", "");
                assert!(storm < CATCH_UP, "{storm} requests to catch up");
            }
        })
        .await;
        proof.held(&format!(
            "{} s of each: stale reads, rejected writes, recovered",
            lasting.as_secs()
        ));
    }

    #[tokio::test]
    async fn survives_an_api_server_that_hangs() {
        let proof = proofs::begin("API server hangs, in units of 10 s", 3, 6);
        let lasting = Duration::from_secs(10 * u64::try_from(proof.rounds).unwrap());
        in_shared_cluster(async |ns: &TestNamespace| {
            let proxy = ApiProxy::start(&ns.cluster).await.unwrap();
            let start =
                async |user| Crm::start(ns, &Options::user(user).through(proxy.url())).await;
            let leader = start("hanging").await;
            deploy(&leader.client, "before", &spec_of(&[hello("greet")])).await.unwrap();
            wait_available(ns, "before").await;
            // A replica that isn't the leader sends fewer requests.
            let other = start("waiting").await;
            marked(&leader, false, NOTICED).await;
            marked(&other, false, NOTICED).await;
            let hung = ["hanging", "waiting"]
                .map(|user| proxy.inject(Match::any().client(user), Fault::Hold));
            let end = tokio::time::Instant::now() + lasting;
            tokio::join!(marked(&leader, true, MISSED), marked(&other, true, MISSED));
            tokio::join!(refused(&leader), refused(&other));
            tokio::time::sleep_until(end).await;
            assert_eq!(read(&leader).await, Ok(true));
            assert_eq!(read(&other).await, Ok(true));
            proxy.reset();
            drop(hung);
            tokio::join!(recovered(ns, &leader, "after"), recovered(ns, &other, "after-too"));
            for user in ["hanging", "waiting"] {
                let storm = count(&proxy.counts(), user, "", "");
                assert!(storm < CATCH_UP, "{user}: {storm} requests to catch up");
            }
        })
        .await;
        proof.held(&format!(
            "{} s without an answer: stale reads, writes rejected in time, recovered",
            lasting.as_secs()
        ));
    }
}
