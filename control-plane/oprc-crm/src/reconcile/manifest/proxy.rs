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
    pod::{self, LAME_DUCK_SECONDS, container_port, variable},
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
        // Calls in the queue must end within the grace period of the pod.
        let default_timeout = function.max_concurrency.map(|_| pod::TIMEOUT_MS);
        let lame_duck = i32::try_from(LAME_DUCK_SECONDS).ok();
        let numbers = [
            ("OPRC_PROXY_PORT", Some(PROXY_PORT)),
            ("OPRC_PROXY_ADMIN_PORT", Some(PROXY_ADMIN_PORT)),
            ("OPRC_PROXY_APP_PORT", Some(function.port)),
            ("OPRC_PROXY_DRAIN_SECONDS", lame_duck),
            ("OPRC_PROXY_MAX_CONCURRENCY", function.max_concurrency),
            ("OPRC_PROXY_TIMEOUT_MS", function.timeout_ms.or(default_timeout)),
            ("OPRC_PROXY_LATENCY_MS", function.latency),
            ("OPRC_PROXY_HARD_LATENCY_MS", function.hard_latency),
        ];
        let env =
            numbers.into_iter().filter_map(|(name, it)| Some(variable(name, it?.to_string())));
        let breaker = function.circuit_breaker.then(|| variable("OPRC_PROXY_BREAKER", "true"));
        Container {
            restart_policy: Some("Always".to_owned()),
            ports: Some(vec![
                container_port(HTTP, PROXY_PORT),
                container_port(METRICS, PROXY_ADMIN_PORT),
            ]),
            env: Some(env.chain(breaker).collect()),
            startup_probe: Some(pod::probe(&healthz(), 1, 1, STARTUP_SECONDS)),
            ..self.proxy_container(CONTAINER)
        }
    }

    /// The init container that ends when a node of the data grid is ready. It runs the proxy's image.
    /// It doesn't depend on the number of nodes: a change of it must not replace the pods.
    pub(crate) fn wait_for_grid(&self) -> Option<Container> {
        self.class.odgm.as_ref()?;
        let service = names::odgm_service(&self.class.identity.base);
        let args = vec!["wait".to_owned(), format!("{service}:{GRID_PORT}")];
        Some(Container { args: Some(args), ..self.proxy_container(WAIT_FOR_GRID) })
    }

    fn proxy_container(&self, name: &str) -> Container {
        let none = Resources::default();
        Container {
            name: name.to_owned(),
            image: Some(self.platform.proxy_image.clone()),
            // Pods must start although the registry is away.
            image_pull_policy: Some("IfNotPresent".to_owned()),
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
