//! A Prometheus beside the cluster that finds what to scrape through the Kubernetes API.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::{
    Error, Result,
    apply::within,
    components::{Component, Layout},
    pki,
    spec::Spec,
};

/// The user it is to the cluster.
pub(crate) const USER: &str = "oprc-sandbox-prometheus";

/// How long one answer may take.
const ANSWERED: Duration = Duration::from_secs(2);

/// The process.
pub(crate) fn component(spec: &Spec, layout: &Layout) -> Component {
    let args = vec![
        format!("--config.file={}", layout.config("prometheus.json").display()),
        format!("--storage.tsdb.path={}", layout.data("prometheus").display()),
        "--storage.tsdb.retention.time=1d".to_owned(),
        format!("--web.listen-address={}:{}", spec.host(), spec.ports.prometheus),
        "--log.level=warn".to_owned(),
    ];
    Component::on_host("prometheus", &spec.programs.prometheus, args)
}

/// Waits until it answers.
pub(crate) async fn ready(spec: &Spec, limit: Duration) -> Result<()> {
    let ask = async || {
        let mut stream = TcpStream::connect((spec.host(), spec.ports.prometheus)).await?;
        stream.write_all(b"GET /-/ready HTTP/1.0\r\n\r\n").await?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await?;
        Ok::<_, std::io::Error>(answer.ends_with(b" 200"))
    };
    let answered = async {
        while !matches!(timeout(ANSWERED, ask()).await, Ok(Ok(true))) {
            // It can't be watched for.
            sleep(Duration::from_millis(100)).await;
        }
        Ok::<_, Error>(())
    };
    within("Prometheus to be ready", limit, answered).await
}

/// Its configuration: pods and services that carry the usual annotations, and every node's
/// container metrics. Series of pods have `namespace`, `pod`, and `oaas_owner` for the class.
pub(crate) fn config(layout: &Layout) -> Value {
    let pki = layout.pki();
    let discover =
        |role: &str| json!([{"role": role, "kubeconfig_file": layout.kubeconfig("prometheus")}]);
    let keep = |label: &str| json!({"source_labels": [label], "action": "keep", "regex": "true"});
    let copy = |from: &str, to: &str| json!({"source_labels": [from], "target_label": to});
    // An annotation, where it is given, takes the place of the path or the port.
    let path = |from: &str| json!({"source_labels": [from], "target_label": "__metrics_path__", "regex": "(.+)"});
    let port = |from: &str| {
        json!({
            "source_labels": ["__address__", from],
            "target_label": "__address__",
            "regex": "([^:]+)(?::\\d+)?;(\\d+)",
            "replacement": "$1:$2",
        })
    };
    let about_pod = [
        copy("__meta_kubernetes_namespace", "namespace"),
        copy("__meta_kubernetes_pod_name", "pod"),
        copy("__meta_kubernetes_pod_label_app", "app"),
        copy("__meta_kubernetes_pod_label_oaas_io_owner", "oaas_owner"),
        copy("__meta_kubernetes_pod_label_oaas_io_deployment_id", "oaas_deployment_id"),
    ];
    let pod = |name: &str| format!("__meta_kubernetes_pod_annotation_prometheus_io_{name}");
    let service = |name: &str| format!("__meta_kubernetes_service_annotation_prometheus_io_{name}");
    let mut pods = vec![keep(&pod("scrape")), path(&pod("path")), port(&pod("port"))];
    pods.push(json!({
        "source_labels": ["__meta_kubernetes_pod_phase"], "action": "drop", "regex": "Succeeded|Failed",
    }));
    pods.extend(about_pod.clone());
    let mut services = vec![
        keep(&service("scrape")),
        // A pod that is scraped for itself isn't scraped again for its service.
        json!({"source_labels": [pod("scrape")], "action": "drop", "regex": "true"}),
        path(&service("path")),
        port(&service("port")),
        copy("__meta_kubernetes_service_name", "service"),
    ];
    services.extend(about_pod);
    json!({
        "global": {"scrape_interval": "5s", "scrape_timeout": "4s"},
        "scrape_configs": [
            {"job_name": "pods", "kubernetes_sd_configs": discover("pod"), "relabel_configs": pods},
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
