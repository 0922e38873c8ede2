//! The object by which the Prometheus Operator finds the metrics of a class: of the proxies, of the
//! functions themselves, and of the data grid.

use oprc_unit::{MonitorKind, Monitors, PROXY_PORT};
use serde_json::{Value, json};

use super::{
    Context, DesiredObject, FUNCTION, FunctionPlan, HTTP, OWNER, desired_object,
    labels::DEPLOYMENT_ID,
    proxy::{APP, METRICS},
};
use crate::kinds::{POD_MONITOR, SERVICE_MONITOR};

const DEFAULT_PATH: &str = "/metrics";

/// None if no pod of the class has metrics. On Knative, its own configuration decides what is scraped.
pub(crate) fn monitor(
    context: &Context<'_>,
    monitors: &Monitors,
    functions: &[FunctionPlan],
) -> Option<DesiredObject> {
    let class = context.class;
    let is_called = |plan: &&FunctionPlan| plan.shape == oprc_unit::Shape::Deployment;
    let own = class.telemetry.metrics != Some(false);
    let path = class.telemetry.metrics_path.as_deref().unwrap_or(DEFAULT_PATH);
    let mut ports = Vec::new();
    if functions.iter().any(|plan| plan.proxied) {
        ports.push((METRICS, DEFAULT_PATH));
    }
    if functions.iter().filter(is_called).any(|plan| own && plan.proxied) {
        ports.push((APP, path));
    }
    if functions.iter().filter(is_called).any(|plan| own && !plan.proxied) {
        ports.push((HTTP, path));
    }
    if class.odgm.is_some() && own {
        ports.push(("grpc", DEFAULT_PATH));
    }
    if ports.is_empty() {
        return None;
    }
    let (kind, endpoints, port) = match monitors.kind {
        MonitorKind::Service => (SERVICE_MONITOR, "endpoints", "targetPort"),
        MonitorKind::Pod => (POD_MONITOR, "podMetricsEndpoints", "port"),
    };
    let interval = format!("{}s", monitors.interval.as_secs());
    let endpoint = |(name, path): (&str, &str)| json!({port: name, "path": path, "interval": interval, "relabelings": relabelings(name)});
    let identity = &class.identity;
    let mut metadata = context.meta(&identity.base, monitors.labels.clone());
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(OWNER.to_owned(), identity.base.clone());
    let spec = json!({
        "selector": {"matchLabels": {OWNER: identity.base}},
        endpoints: ports.into_iter().map(endpoint).collect::<Vec<_>>(),
    });
    Some(desired_object(kind, &json!({"metadata": metadata, "spec": spec})))
}

/// Adds class, function and deployment id to the series.
fn relabelings(port: &str) -> Vec<Value> {
    let meta = |label: &str| {
        let label = label.replace(|it: char| !it.is_ascii_alphanumeric(), "_");
        format!("__meta_kubernetes_pod_label_{label}")
    };
    let copy =
        |label: &str, name: &str| json!({"sourceLabels": [meta(label)], "targetLabel": name});
    let mut all = vec![
        copy(OWNER, "oaas_owner"),
        copy(FUNCTION, "oaas_function"),
        copy(DEPLOYMENT_ID, "oaas_deployment_id"),
    ];
    if port == HTTP {
        // Behind a proxy that port is the proxy's: a scrape would be a call of the function.
        all.push(json!({
            "sourceLabels": ["__meta_kubernetes_pod_container_port_number"],
            "regex": PROXY_PORT.to_string(),
            "action": "drop",
        }));
    }
    all
}
