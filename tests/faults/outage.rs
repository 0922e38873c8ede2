//! The API server goes, refuses, or is overwhelmed: the process stays, and everything is as it is
//! to be when that is over.

use std::time::Duration;

use oprc_grpc::deployment::{GetDeploymentStatusRequest, ListClassRuntimesRequest};
use oprc_sandbox::{
    proxy::{ApiProxy, Fault, Match},
    supervisor::Action,
};
use oprc_tests::{
    Place,
    class::{available, deploy, everything, hello, of, with_odgm},
    crm::{Crm, Options, install},
    eventually,
    http::get_ok,
    in_namespace, in_namespace_of, proof as proofs, with_simulated,
};
use tonic::Code;

/// How long it may take after a fault until all is well.
const AFTER: Duration = Duration::from_secs(30);

fn status_of(id: &str) -> GetDeploymentStatusRequest {
    GetDeploymentStatusRequest { deployment_id: id.to_owned(), namespace: String::new() }
}

/// Requests to the API server so far, as CRM counts them.
async fn requests(crm: &Crm) -> u64 {
    let text = get_ok(&format!("{}/metrics", crm.url)).await.unwrap();
    let lines = text.lines().filter(|line| line.starts_with("crm_api_requests_total"));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
}

mod proof {
    use super::*;

    #[tokio::test]
    async fn the_api_server_is_gone_for_a_while() {
        let proof = proofs::begin("API server gone, in tens of seconds", 1, 6);
        let away = Duration::from_secs(10 * u64::try_from(proof.rounds).unwrap());
        with_simulated("test-outage", 1, async |cluster| {
            install(&cluster);
            in_namespace_of(cluster.clone(), async |place: &Place| {
                let options = Options::default().with("OPRC_CRM_FEATURES_LEADER_ELECTION", "false");
                let crm = Crm::start(place, &options).await;
                deploy(&crm.client, "before", &of(&[hello("greet")])).await.unwrap();
                available(place, "before").await;

                cluster.supervisor().act("kube-apiserver", Action::Stop).await.unwrap();
                let stale = eventually("reads to be marked stale", AFTER, || async {
                    let asked = crm.client.clone().get_deployment_status(status_of("before")).await;
                    let answer = asked.map_err(|status| status.to_string())?.into_inner();
                    if answer.stale { Ok(answer) } else { Err("not yet".to_owned()) }
                })
                .await;
                assert_eq!(stale.class_runtime.unwrap().status.unwrap().phase, "Available");
                let listed = ListClassRuntimesRequest::default();
                let listed =
                    crm.client.clone().list_class_runtimes(listed).await.unwrap().into_inner();
                assert!(listed.stale && listed.class_runtimes.len() == 1);
                let refused =
                    deploy(&crm.client, "during", &of(&[hello("greet")])).await.unwrap_err();
                assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
                get_ok(&format!("{}/health/live", crm.url)).await.unwrap();
                tokio::time::sleep(away).await;
                let before = requests(&crm).await;

                cluster.supervisor().act("kube-apiserver", Action::Start).await.unwrap();
                eventually("writes to be taken again", AFTER, || async {
                    let taken = deploy(&crm.client, "after", &of(&[hello("greet")])).await;
                    taken.map_err(|status| status.to_string())
                })
                .await;
                available(place, "after").await;
                let storm = requests(&crm).await - before;
                assert!(storm < 150, "{storm} requests to catch up");
            })
            .await;
        })
        .await;
        proof.held(&format!(
            "{} s without an API server: stale reads, refused writes, caught up",
            away.as_secs()
        ));
    }
}

#[tokio::test]
async fn conflicts_refusals_and_errors_pass() {
    in_namespace(async |place: &Place| {
        let proxy = ApiProxy::start(&place.cluster).await.unwrap();
        let crm = Crm::start(place, &Options::user("tried").through(proxy.url())).await;
        let writes = || Match::any().client("tried").verb("patch");
        let faults = [
            ("409 once", Fault::Status(409, None), 1),
            ("409 five times", Fault::Status(409, None), 5),
            ("429 with a time to wait", Fault::Status(429, Some(1)), 3),
            ("500", Fault::Status(500, None), 4),
            ("503", Fault::Status(503, None), 4),
            ("refused", Fault::Refuse, 3),
            ("cut after it was done", Fault::Cut, 3),
        ];
        for (at, (what, fault, times)) in faults.into_iter().enumerate() {
            let name = format!("tried-{at}");
            // Only what CRM does by itself: who calls is told, and tries again.
            let injected =
                proxy.inject_times(writes().resource("deployments.apps"), fault.clone(), times);
            let also =
                proxy.inject_times(writes().resource("classruntimes.oaas.io/status"), fault, times);
            deploy(&crm.client, &name, &of(&[hello("greet")])).await.unwrap();
            let status = available(place, &name).await;
            assert_eq!(status.ready.as_deref(), Some("1/1"), "{what}");
            drop((injected, also));
        }
        let made = everything(place).await;
        let deployments = made.iter().filter(|name| name.starts_with("Deployment/")).count();
        assert_eq!(deployments, 7, "{made:?}");
    })
    .await;
}

/// Watches that break are opened again, and nothing is missed in between.
#[tokio::test]
async fn watches_that_break_miss_nothing() {
    in_namespace(async |place: &Place| {
        let proxy = ApiProxy::start(&place.cluster).await.unwrap();
        let crm = Crm::start(place, &Options::user("blind").through(proxy.url())).await;
        for round in 0..3 {
            let watches = Match::any().client("blind").verb("watch");
            let fault = if round == 1 { Fault::Status(410, None) } else { Fault::Cut };
            let cut = proxy.inject(watches, fault);
            deploy(&crm.client, &format!("blind-{round}"), &with_odgm(&[hello("greet")]))
                .await
                .unwrap();
            drop(cut);
            available(place, &format!("blind-{round}")).await;
        }
    })
    .await;
}
