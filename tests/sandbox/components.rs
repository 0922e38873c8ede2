//! Restart, stop and freeze of components.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Pod},
};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
    runtime::wait::await_condition,
};
use oprc_sandbox::{
    Cluster, NodeChoice, Options,
    supervisor::{Action, State},
    within,
};
use oprc_tests::{
    TestNamespace, eventually, hello_archive,
    http::get_ok,
    in_namespace_of,
    objects::{READY_TIMEOUT, deploy_hello, hello_template, named, restricted},
    shared, with_cluster, with_simulated,
};
use serde_json::json;

#[tokio::test]
async fn restarts_every_killed_component() {
    let options = Options { node: NodeChoice::Real, prometheus: true, ..Options::default() };
    with_cluster("test-recover", &options, async |cluster| {
        cluster.load_image(&hello_archive()).await.unwrap();
        in_namespace_of(cluster.clone(), async |ns: &TestNamespace| {
            let url = deploy_hello(ns, "before").await;
            let supervisor = cluster.supervisor();
            for component in supervisor.status().await.unwrap() {
                let restarted = supervisor.kill(&component.name).await.unwrap();
                assert!(restarted.restarts > component.restarts, "{restarted:?}");
                assert_ne!(restarted.pid, component.pid);
                eventually(
                    &format!("the API server after {} was killed", component.name),
                    READY_TIMEOUT,
                    || create_config_map(ns, &component.name),
                )
                .await;
            }
            let prometheus = format!("{}/-/ready", cluster.spec().prometheus_url().unwrap());
            eventually("Prometheus", READY_TIMEOUT, || get_ok(&prometheus)).await;
            // The existing pod serves again, and a new one can be created.
            eventually("a response of the existing pod", READY_TIMEOUT, || get_ok(&url)).await;
            deploy_hello(ns, "after").await;
        })
        .await;
    })
    .await;
}

async fn create_config_map(ns: &TestNamespace, name: &str) -> Result<(), String> {
    let config_maps: Api<ConfigMap> = Api::namespaced(ns.client.clone(), &ns.name);
    let object = ConfigMap { metadata: named(name), ..ConfigMap::default() };
    match config_maps.create(&PostParams::default(), &object).await {
        Ok(_) => Ok(()),
        // Created by an attempt whose response was lost.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

#[tokio::test]
async fn kills_a_frozen_component_of_a_node() {
    let cluster = shared().await;
    let supervisor = cluster.supervisor();
    supervisor.act("kube-proxy", Action::Freeze).await.unwrap();
    let restarted = supervisor.kill("kube-proxy").await.unwrap();
    assert_eq!(restarted.state, State::Running);
}

#[tokio::test]
async fn concurrent_ups_create_one_cluster_and_down_stops_a_hung_supervisor() {
    with_simulated("test-twice", 1, async |cluster: Cluster| {
        let options = Options { no_fsync: true, ..Options::default() };
        let (first, second) = futures::join!(
            Cluster::up("test-twice", &options),
            Cluster::up("test-twice", &options)
        );
        assert_eq!(first.unwrap().spec().api_url(), second.unwrap().spec().api_url());
        assert!(etcd_arguments(&cluster).await.contains("--unsafe-no-fsync"));
        let pid = i32::try_from(cluster.supervisor().pid().unwrap()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        // `with_simulated` deletes the cluster and fails if that is not possible.
    })
    .await;
}

#[tokio::test]
async fn freezes_stops_and_starts_components() {
    with_simulated("test-freeze", 1, async |cluster: Cluster| {
        in_namespace_of(cluster.clone(), async |ns: &TestNamespace| {
            let supervisor = cluster.supervisor();
            let state = async |name: &str| supervisor.component(name).await.unwrap().state;
            supervisor.act("kube-scheduler", Action::Freeze).await.unwrap();
            assert_eq!(state("kube-scheduler").await, State::Frozen);
            create_pod(ns, "waits").await;
            // Other controllers have handled a newer object.
            create_observed_deployment(ns).await;
            assert_eq!(node_of(ns, "waits").await, None);
            supervisor.act("kube-scheduler", Action::Thaw).await.unwrap();
            wait_until_bound(ns, "waits").await;

            supervisor.act("kwok", Action::Stop).await.unwrap();
            assert_eq!(state("kwok").await, State::Stopped);
            let error = supervisor.act("kwok", Action::Freeze).await.unwrap_err().to_string();
            assert!(error.contains("kwok is not running"), "{error}");
            supervisor.act("kwok", Action::Start).await.unwrap();
            create_pod(ns, "runs").await;
            let pods: Api<Pod> = Api::namespaced(ns.client.clone(), &ns.name);
            let running =
                await_condition(pods, "runs", kube::runtime::conditions::is_pod_running());
            within("the pod to run", READY_TIMEOUT, running).await.unwrap();

            let error = supervisor.act("nonsense", Action::Stop).await.unwrap_err().to_string();
            assert!(error.contains("has no component 'nonsense'; components: etcd"), "{error}");
        })
        .await;
    })
    .await;
}

async fn create_pod(ns: &TestNamespace, name: &str) {
    let pods: Api<Pod> = Api::namespaced(ns.client.clone(), &ns.name);
    let pod = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"containers": [{
            "name": "none", "image": "none", "securityContext": restricted(),
        }]},
    }));
    // The default service account is created shortly after the namespace.
    let pod = pod.unwrap();
    eventually("a pod", READY_TIMEOUT, || async {
        match pods.create(&PostParams::default(), &pod).await {
            Ok(_) => Ok(()),
            // Created by an attempt whose response was lost.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    })
    .await;
}

/// Creates a Deployment and waits until its controller has observed it.
async fn create_observed_deployment(ns: &TestNamespace) {
    let deployments: Api<Deployment> = Api::namespaced(ns.client.clone(), &ns.name);
    let deployment = serde_json::from_value(json!({
        "metadata": {"name": "newer"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "newer"}},
            "template": hello_template("newer"),
        },
    }));
    deployments.create(&PostParams::default(), &deployment.unwrap()).await.unwrap();
    let observed = |deployment: Option<&Deployment>| {
        deployment.and_then(|deployment| deployment.status.as_ref()?.observed_generation).is_some()
    };
    within(
        "the Deployment to be observed",
        READY_TIMEOUT,
        await_condition(deployments, "newer", observed),
    )
    .await
    .unwrap();
}

async fn node_of(ns: &TestNamespace, name: &str) -> Option<String> {
    let pods: Api<Pod> = Api::namespaced(ns.client.clone(), &ns.name);
    pods.get(name).await.unwrap().spec.unwrap().node_name
}

async fn wait_until_bound(ns: &TestNamespace, name: &str) {
    let pods: Api<Pod> = Api::namespaced(ns.client.clone(), &ns.name);
    let is_bound =
        |pod: Option<&Pod>| pod.is_some_and(|pod| pod.spec.as_ref().unwrap().node_name.is_some());
    within("the pod to be bound", READY_TIMEOUT, await_condition(pods, name, is_bound))
        .await
        .unwrap();
}

/// The command line of a cluster's etcd.
pub(crate) async fn etcd_arguments(cluster: &Cluster) -> String {
    let etcd = cluster.supervisor().component("etcd").await.unwrap();
    std::fs::read_to_string(format!("/proc/{}/cmdline", etcd.pid.unwrap())).unwrap()
}

/// How long a writer retries while the API server is unavailable.
const RETRY_TIMEOUT: Duration = Duration::from_mins(10);

/// Names and contents of objects whose creation was acknowledged.
pub(crate) type Acknowledged = BTreeMap<String, String>;

/// Creates objects until `count` of them are acknowledged.
pub(crate) async fn write(
    api: Api<ConfigMap>,
    writer: usize,
    round: usize,
    count: usize,
) -> Acknowledged {
    let started = Instant::now();
    let mut acknowledged = Acknowledged::new();
    let mut attempt = 0;
    while acknowledged.len() < count {
        attempt += 1;
        let name = format!("r{round}-w{writer}-{attempt}");
        let content = format!("{name} was written");
        let object = ConfigMap {
            metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
            data: Some(BTreeMap::from([("content".to_owned(), content.clone())])),
            ..ConfigMap::default()
        };
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => {
                acknowledged.insert(name, content);
            }
            // Not acknowledged: the writer retries after a short pause, for a limited time.
            Err(error) if started.elapsed() > RETRY_TIMEOUT => {
                panic!("the API server did not recover: {error}")
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    acknowledged
}
