//! The sample function on a real node.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, runtime::wait::await_condition};
use oprc_sandbox::within;
use oprc_tests::{
    TestNamespace, eventually,
    http::{get, get_ok, series},
    in_namespace,
    objects::{READY_TIMEOUT, deploy_hello, get_from_pod, pod_of},
};

const SCRAPE_TIMEOUT: Duration = Duration::from_mins(3);

#[tokio::test]
async fn function_is_reachable_from_the_machine_and_from_pods() {
    in_namespace(async |ns: &TestNamespace| {
        let url = deploy_hello(ns, "hello").await;
        let body = get_ok(&format!("{url}/?name=host")).await.unwrap();
        assert!(body.contains("Hello, host!"), "{body}");
        let inside = format!("http://hello.{}.svc.cluster.local/?name=pod", ns.name);
        let body = get_from_pod(ns, &inside).await;
        assert!(body.contains("Hello, pod!"), "{body}");
        let (status, _) = get(&format!("{url}/?fail=503"), None).await.unwrap();
        assert_eq!(status, 503);
    })
    .await;
}

#[tokio::test]
async fn prometheus_scrapes_pods_and_containers() {
    in_namespace(async |ns: &TestNamespace| {
        let url = deploy_hello(ns, "metered").await;
        for _ in 0..3 {
            get_ok(&url).await.unwrap();
        }
        let prometheus = ns.cluster.spec().prometheus_url().unwrap();
        let namespace = &ns.name;
        let pod = pod_of(ns, "metered").await.metadata.name.unwrap();
        // Latency is queried by these labels.
        let requests = format!(
            r#"sum(http_server_requests_seconds_count{{oaas_owner="metered",namespace="{namespace}",pod="{pod}"}}) >= 3"#
        );
        let buckets = format!(
            r#"http_server_requests_seconds_bucket{{oaas_owner="metered",namespace="{namespace}",le="0.005"}}"#
        );
        let container = format!(r#"pod="{pod}",container!="",namespace="{namespace}""#);
        let cpu = format!("sum(container_cpu_usage_seconds_total{{{container}}})");
        let memory = format!("sum(container_memory_working_set_bytes{{{container}}}) > 0");
        for expression in [requests, buckets, cpu, memory] {
            eventually(&expression, SCRAPE_TIMEOUT, || series(&prometheus, &expression)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn prometheus_is_reachable_from_pods() {
    in_namespace(async |ns: &TestNamespace| {
        let url = "http://prometheus.monitoring.svc.cluster.local:9090/api/v1/query?query=up";
        let body = get_from_pod(ns, url).await;
        assert!(body.contains(r#""status":"success""#), "{body}");
    })
    .await;
}

#[tokio::test]
async fn restarts_a_killed_container() {
    in_namespace(async |ns: &TestNamespace| {
        let url = deploy_hello(ns, "killed").await;
        let pod = pod_of(ns, "killed").await;
        let uid = pod.metadata.uid.clone().unwrap();
        kill_container(&uid);
        let restarted = |pod: Option<&Pod>| {
            let status =
                pod.and_then(|pod| pod.status.as_ref()?.container_statuses.as_ref()?.first());
            status.is_some_and(|status| status.restart_count == 1 && status.ready)
        };
        let pods: Api<Pod> = Api::namespaced(ns.client.clone(), &ns.name);
        let name = pod.metadata.name.unwrap();
        within("the restart", READY_TIMEOUT, await_condition(pods, &name, restarted))
            .await
            .unwrap();
        eventually("a response", READY_TIMEOUT, || get_ok(&url)).await;
    })
    .await;
}

/// Kills the sample function in a pod, found by the pod's cgroup.
fn kill_container(uid: &str) {
    let mut killed = 0;
    for process in std::fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
        let path = process.path();
        let groups = std::fs::read_to_string(path.join("cgroup")).unwrap_or_default();
        let program = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        if groups.contains(uid) && program.trim() == "hello-fn" {
            let pid = process.file_name().to_str().unwrap().parse().unwrap();
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            killed += 1;
        }
    }
    assert_eq!(killed, 1, "processes killed");
}
