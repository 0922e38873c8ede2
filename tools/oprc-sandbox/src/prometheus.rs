//! Prometheus on this machine, with service discovery through the Kubernetes API.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{
    Result,
    apply::poll_until,
    component::{Component, file, flag},
    layout::Layout,
    pki,
    spec::Spec,
};

/// Its user name in the cluster.
pub(crate) const USER: &str = "oprc-sandbox-prometheus";

const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn component(spec: &Spec, layout: &Layout) -> Component {
    let args = vec![
        file("config.file", &layout.config("prometheus.json")),
        file("storage.tsdb.path", &layout.data("prometheus")),
        flag("storage.tsdb.retention.time", "1d"),
        flag("web.listen-address", format!("{}:{}", spec.host(), spec.ports.prometheus)),
        flag("log.level", "warn"),
    ];
    Component::on_host("prometheus", &spec.programs.prometheus, args)
}

pub(crate) async fn ready(spec: &Spec, limit: Duration) -> Result<()> {
    let request = async || {
        let mut stream = TcpStream::connect((spec.host(), spec.ports.prometheus)).await?;
        stream.write_all(b"GET /-/ready HTTP/1.0\r\n\r\n").await?;
        let mut response = [0; 12];
        stream.read_exact(&mut response).await?;
        Ok::<_, std::io::Error>(response.ends_with(b" 200"))
    };
    let is_ready = async || matches!(timeout(REQUEST_TIMEOUT, request()).await, Ok(Ok(true)));
    poll_until("Prometheus to be ready", limit, is_ready).await
}

/// The configuration: scrapes pods and services with the usual annotations and the cAdvisor metrics
/// of every node. Series of pods have `namespace`, `pod`, and `oaas_owner` for the class.
pub(crate) fn config(layout: &Layout) -> Value {
    let pki = layout.pki();
    let discover =
        |role: &str| json!([{"role": role, "kubeconfig_file": layout.kubeconfig("prometheus")}]);
    let keep = |label: &str| json!({"source_labels": [label], "action": "keep", "regex": "true"});
    let copy = |from: &str, to: &str| json!({"source_labels": [from], "target_label": to});
    // Annotations override path and port.
    let path = |from: &str| json!({"source_labels": [from], "target_label": "__metrics_path__", "regex": "(.+)"});
    let port = |from: &str| {
        json!({
            "source_labels": ["__address__", from],
            "target_label": "__address__",
            "regex": "([^:]+)(?::\\d+)?;(\\d+)",
            "replacement": "$1:$2",
        })
    };
    let pod_labels = [
        copy("__meta_kubernetes_namespace", "namespace"),
        copy("__meta_kubernetes_pod_name", "pod"),
        copy("__meta_kubernetes_pod_label_app", "app"),
        copy("__meta_kubernetes_pod_label_oaas_io_owner", "oaas_owner"),
        copy("__meta_kubernetes_pod_label_oaas_io_deployment_id", "oaas_deployment_id"),
    ];
    let pod = |name: &str| format!("__meta_kubernetes_pod_annotation_prometheus_io_{name}");
    let service = |name: &str| format!("__meta_kubernetes_service_annotation_prometheus_io_{name}");
    let drop = |label: &str, regex: &str| json!({"source_labels": [label], "action": "drop", "regex": regex});
    let mut pods = vec![keep(&pod("scrape")), path(&pod("path")), port(&pod("port"))];
    pods.push(drop("__meta_kubernetes_pod_phase", "Succeeded|Failed"));
    pods.extend(pod_labels.clone());
    // The metrics of proxies in front of functions, beside those of the functions: CRM's proxy, and
    // Knative's queue-proxy.
    let mut proxies = vec![json!({
        "source_labels": ["__meta_kubernetes_pod_container_port_name"],
        "action": "keep",
        "regex": "proxy-metrics|http-usermetric",
    })];
    proxies.push(drop("__meta_kubernetes_pod_phase", "Succeeded|Failed"));
    proxies.extend(pod_labels.clone());
    let mut services = vec![
        keep(&service("scrape")),
        // A pod with its own annotation is not scraped twice.
        drop(&pod("scrape"), "true"),
        path(&service("path")),
        port(&service("port")),
        copy("__meta_kubernetes_service_name", "service"),
    ];
    services.extend(pod_labels);
    json!({
        "global": {"scrape_interval": "5s", "scrape_timeout": "4s"},
        "scrape_configs": [
            {"job_name": "pods", "kubernetes_sd_configs": discover("pod"), "relabel_configs": pods},
            {
                "job_name": "proxies",
                "kubernetes_sd_configs": discover("pod"),
                "relabel_configs": proxies,
            },
            {
                "job_name": "services",
                "kubernetes_sd_configs": discover("endpointslice"),
                "relabel_configs": services,
            },
            {
                "job_name": "cadvisor",
                "kubernetes_sd_configs": discover("node"),
                "scheme": "https",
                "metrics_path": "/metrics/cadvisor",
                "tls_config": {
                    "ca_file": pki.certificate(pki::CLUSTER),
                    "cert_file": pki.certificate("prometheus"),
                    "key_file": pki.key("prometheus"),
                },
                "relabel_configs": [copy("__meta_kubernetes_node_name", "node")],
            },
        ],
    })
}
