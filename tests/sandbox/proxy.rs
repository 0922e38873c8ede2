//! Faults and request counts of the API proxy.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use futures::{FutureExt as _, Stream, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use oprc_sandbox::{
    proxy::{ApiProxy, Fault, Match},
    within,
};
use oprc_tests::{TestNamespace, in_namespace, objects::named};
use serde_json::json;

const MASTERS: Option<&str> = Some("system:masters");
const TIMEOUT: Duration = Duration::from_secs(20);

fn config(name: &str) -> ConfigMap {
    ConfigMap { metadata: named(name), ..ConfigMap::default() }
}

fn configs(client: Client, ns: &TestNamespace) -> Api<ConfigMap> {
    Api::namespaced(client, &ns.name)
}

/// A proxy, a client through it, and one that bypasses it.
async fn setup(ns: &TestNamespace) -> (ApiProxy, Api<ConfigMap>, Api<ConfigMap>) {
    let proxy = ApiProxy::start(&ns.cluster).await.unwrap();
    let through = configs(proxy.client("tester", MASTERS).await.unwrap(), ns);
    (proxy, through, configs(ns.client.clone(), ns))
}

async fn create(api: &Api<ConfigMap>, name: &str) -> kube::Result<ConfigMap> {
    api.create(&PostParams::default(), &config(name)).await
}

#[tokio::test]
async fn counts_requests_by_client_verb_and_resource() {
    in_namespace(async |ns: &TestNamespace| {
        let (proxy, first, _) = setup(ns).await;
        let second = configs(proxy.client("other", MASTERS).await.unwrap(), ns);
        for number in 0..7 {
            create(&first, &format!("c-{number}")).await.unwrap();
        }
        for _ in 0..3 {
            first.get("c-0").await.unwrap();
            second.list(&ListParams::default()).await.unwrap();
        }
        let patch = Patch::Merge(json!({"data": {"a": "b"}}));
        second.patch("c-1", &PatchParams::default(), &patch).await.unwrap();
        second.delete("c-2", &kube::api::DeleteParams::default()).await.unwrap();
        let _watch = watch(&second).await;
        let counts = proxy.counts();
        let lines: Vec<_> = counts
            .iter()
            .map(|((client, verb, resource), count)| format!("{client} {verb} {resource} {count}"))
            .collect();
        assert_eq!(
            lines,
            [
                "other delete configmaps 1",
                "other list configmaps 3",
                "other patch configmaps 1",
                "other watch configmaps 1",
                "tester create configmaps 7",
                "tester get configmaps 3",
            ]
        );
        let numbers: Vec<_> = proxy
            .recorded()
            .iter()
            .filter(|request| request.client == "tester")
            .map(|request| request.number)
            .collect();
        assert_eq!(numbers, (1..=10).collect::<Vec<u64>>());
        proxy.reset();
        assert!(proxy.counts().is_empty());
    })
    .await;
}

#[tokio::test]
async fn identifies_clients_by_their_certificates() {
    in_namespace(async |ns: &TestNamespace| {
        let proxy = ApiProxy::start(&ns.cluster).await.unwrap();
        let nobody = configs(proxy.client("nobody", None).await.unwrap(), ns);
        match create(&nobody, "mine").await {
            Err(kube::Error::Api(status)) => {
                assert_eq!(status.code, 403);
                assert!(status.message.contains(r#"User "nobody""#), "{}", status.message);
            }
            other => panic!("not rejected: {other:?}"),
        }
        // Without a certificate of the cluster there is no connection.
        let mut config = kube::Config::new(proxy.url().parse().unwrap());
        config.accept_invalid_certs = true;
        let stranger = configs(Client::try_from(config).unwrap(), ns);
        assert!(matches!(create(&stranger, "mine").await, Err(error) if !matches!(error, kube::Error::Api(_))));
        assert_eq!(proxy.counts().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn dropped_requests_do_not_reach_the_api_server() {
    in_namespace(async |ns: &TestNamespace| {
        let (proxy, through, direct) = setup(ns).await;
        let fault = proxy.inject(Match::any().verb("create"), Fault::DropRequest);
        assert!(create(&through, "refused").await.is_err());
        assert!(direct.get_opt("refused").await.unwrap().is_none());
        through.list(&ListParams::default()).await.unwrap();
        drop(fault);
        create(&through, "refused").await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn delays_requests() {
    in_namespace(async |ns: &TestNamespace| {
        let (proxy, through, _) = setup(ns).await;
        let delay = Duration::from_secs(2);
        let _fault = proxy.inject(Match::any().client("tester"), Fault::Delay(delay));
        let started = Instant::now();
        create(&through, "late").await.unwrap();
        assert!(started.elapsed() >= delay);
    })
    .await;
}

#[tokio::test]
async fn responds_with_a_status_without_the_api_server() {
    in_namespace(async |ns: &TestNamespace| {
        let (proxy, through, direct) = setup(ns).await;
        // By number: the next request of this client, whatever it is.
        let next =
            || Match::any().number(proxy.recorded().last().map_or(1, |request| request.number + 1));
        for (status, reason) in [(409, "Conflict"), (410, "Expired"), (500, "InternalError")] {
            let _fault = proxy.inject(next(), Fault::Status(status, None));
            match create(&through, "never").await {
                Err(kube::Error::Api(error)) => {
                    assert_eq!((error.code, error.reason.as_str()), (status, reason));
                }
                other => panic!("{status}: {other:?}"),
            }
        }
        assert!(direct.get_opt("never").await.unwrap().is_none());
        // The client retries by itself after the time in Retry-After.
        let _fault = proxy.inject(next(), Fault::Status(429, Some(1)));
        let (started, before) = (Instant::now(), proxy.recorded().len());
        create(&through, "never").await.unwrap();
        assert_eq!(proxy.recorded().len(), before + 2);
        assert!(started.elapsed() >= Duration::from_secs(1));
    })
    .await;
}

#[tokio::test]
async fn requests_with_dropped_responses_are_executed() {
    in_namespace(async |ns: &TestNamespace| {
        let (proxy, through, direct) = setup(ns).await;
        let _fault = proxy.inject_times(
            Match::any().verb("create").resource("configmaps"),
            Fault::DropResponse,
            1,
        );
        assert!(create(&through, "done").await.is_err());
        assert!(direct.get_opt("done").await.unwrap().is_some());
    })
    .await;
}

#[tokio::test]
async fn forwards_held_requests_when_the_fault_is_removed() {
    in_namespace(async |ns: &TestNamespace| {
        let (proxy, through, direct) = setup(ns).await;
        let hold = proxy.inject(Match::any().name("slow").verb("get"), Fault::Hold);
        create(&direct, "slow").await.unwrap();
        let mut held = pin!(through.get("slow"));
        // The request has arrived at the proxy and is held there.
        let arrived = proxy.wait_for(|counts| !counts.is_empty());
        tokio::select! {
            () = arrived => {}
            response = &mut held => panic!("response to a held request: {response:?}"),
        }
        through.list(&ListParams::default()).await.unwrap();
        assert!((&mut held).now_or_never().is_none());
        drop(hold);
        within("the held response", TIMEOUT, held).await.unwrap();
    })
    .await;
}

type Events = std::pin::Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<ConfigMap>>>>>;

/// Starts a watch that begins with the existing objects.
async fn watch(api: &Api<ConfigMap>) -> Events {
    let api = api.clone();
    Box::pin(api.watch(&WatchParams::default(), "0").await.unwrap().boxed_local())
}

/// Reads a watch until an object is added.
async fn event_of(events: &mut Events, name: &str) {
    let read = async {
        while let Some(event) = events.next().await {
            if let WatchEvent::Added(object) = event.map_err(|error| error.to_string())?
                && object.metadata.name.as_deref() == Some(name)
            {
                return Ok(());
            }
        }
        Err("the watch ended".to_owned())
    };
    within(&format!("the event of {name}"), TIMEOUT, read).await.unwrap();
}

#[tokio::test]
async fn held_watches_lose_no_event() {
    in_namespace(async |ns: &TestNamespace| {
        let (proxy, through, direct) = setup(ns).await;
        let mut proxied_events = watch(&through).await;
        let mut direct_events = watch(&direct).await;
        create(&direct, "before").await.unwrap();
        event_of(&mut proxied_events, "before").await;
        let hold = proxy.inject(Match::any().verb("watch").resource("configmaps"), Fault::Hold);
        create(&direct, "held").await.unwrap();
        event_of(&mut direct_events, "held").await;
        // Other requests pass, the event is held.
        through.get("held").await.unwrap();
        assert!(proxied_events.next().now_or_never().is_none());
        drop(hold);
        event_of(&mut proxied_events, "held").await;
    })
    .await;
}

#[tokio::test]
async fn closes_running_watches_which_can_be_reopened() {
    in_namespace(async |ns: &TestNamespace| {
        let (proxy, through, direct) = setup(ns).await;
        let mut events = watch(&through).await;
        create(&direct, "before").await.unwrap();
        event_of(&mut events, "before").await;
        let _cut = proxy.inject_times(Match::any().verb("watch"), Fault::DropResponse, 1);
        let ended = async {
            while let Some(event) = events.next().await {
                if event.is_err() {
                    break;
                }
            }
            Ok::<_, String>(())
        };
        within("the end of the watch", TIMEOUT, ended).await.unwrap();
        let mut reopened = watch(&through).await;
        event_of(&mut reopened, "before").await;
    })
    .await;
}
