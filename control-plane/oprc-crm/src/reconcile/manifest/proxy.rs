//! The proxy in front of a function: a native sidecar, which starts before the function and ends
//! after it.

use k8s_openapi::{
    api::core::v1::{Container, HTTPGetAction, LifecycleHandler, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};
use oprc_unit::{
    PROXY_ADMIN_PORT, PROXY_PORT, ValidFunction, names, proxy_sizes,
    spec::{Resources, Security},
};

use super::{
    Context, GRID_PORT, HTTP,
    pod::{self, container_port, variable},
};

/// The name of the function's port behind a proxy.
pub(crate) const APP: &str = "app";
/// The name of the port with the proxy's metrics, by which Prometheus finds it.
pub(crate) const METRICS: &str = "proxy-metrics";
const CONTAINER: &str = "proxy";
const WAIT_FOR_GRID: &str = "wait-for-grid";
/// Seconds that the proxy may take to start.
const STARTUP_SECONDS: i32 = 30;

impl Context<'_> {
    pub(crate) fn proxy(&self, function: &ValidFunction) -> Container {
        let numbers = [
            ("OPRC_PROXY_APP_PORT", Some(function.port)),
            ("OPRC_PROXY_MAX_CONCURRENCY", function.max_concurrency),
            ("OPRC_PROXY_TIMEOUT_MS", function.timeout_ms),
            ("OPRC_PROXY_LATENCY_MS", function.latency),
            ("OPRC_PROXY_HARD_LATENCY_MS", function.hard_latency),
        ];
        let env =
            numbers.into_iter().filter_map(|(name, it)| Some(variable(name, it?.to_string())));
        Container {
            restart_policy: Some("Always".to_owned()),
            ports: Some(vec![
                container_port(HTTP, PROXY_PORT),
                container_port(METRICS, PROXY_ADMIN_PORT),
            ]),
            env: Some(env.collect()),
            startup_probe: Some(pod::probe(&healthz(), 1, 1, STARTUP_SECONDS)),
            ..self.proxy_container(CONTAINER)
        }
    }

    /// The init container that ends when enough nodes of the data grid are ready. It runs the proxy's
    /// image.
    pub(crate) fn wait_for_grid(&self) -> Option<Container> {
        let grid = self.class.odgm.as_ref()?;
        let base = &self.class.identity.base;
        let service =
            if grid.stateful() { names::odgm_peers(base) } else { names::odgm_service(base) };
        let address = format!("{service}:{GRID_PORT}");
        let args = ["wait", &address, "--nodes", &grid.needed().to_string()].map(str::to_owned);
        Some(Container { args: Some(args.to_vec()), ..self.proxy_container(WAIT_FOR_GRID) })
    }

    fn proxy_container(&self, name: &str) -> Container {
        let none = Resources::default();
        Container {
            name: name.to_owned(),
            image: Some(self.platform.proxy_image.clone()),
            resources: Some(pod::resources(&none, &none, &proxy_sizes())),
            security_context: pod::security(&Security::default()),
            ..Container::default()
        }
    }
}

fn get(path: &str) -> HTTPGetAction {
    HTTPGetAction {
        path: Some(path.to_owned()),
        port: IntOrString::Int(PROXY_ADMIN_PORT),
        scheme: Some("HTTP".to_owned()),
        ..HTTPGetAction::default()
    }
}

fn healthz() -> Probe {
    Probe { http_get: Some(get("/healthz")), ..Probe::default() }
}

/// The hook that runs before the function is stopped. It returns when the pod is no longer an
/// endpoint and no call is in progress: the kubelet stops sidecars only after the function.
pub(crate) fn drain() -> LifecycleHandler {
    LifecycleHandler { http_get: Some(get("/drain")), ..LifecycleHandler::default() }
}
