//! The settings of CRM.

use std::time::Duration;

use oprc_config::{Kind, Schema, Setting};
use oprc_unit::{Platform, Profile};

use crate::signals::Query;

fn platform(profile: &str) -> Platform {
    Platform::of(Profile::parse(profile).unwrap_or_default())
}

// The signature is that of `Setting::default`.
#[allow(clippy::unnecessary_wraps)]
fn seconds(duration: Duration) -> Option<String> {
    Some(format!("{}s", duration.as_secs()))
}

// The signature is that of `Setting::default`.
#[allow(clippy::unnecessary_wraps)]
fn only_full(profile: &str) -> Option<String> {
    Some((Profile::parse(profile) == Some(Profile::Full)).to_string())
}

// The signature is that of `Setting::default`.
#[allow(clippy::unnecessary_wraps)]
fn not_dev(profile: &str) -> Option<String> {
    Some((Profile::parse(profile) != Some(Profile::Dev)).to_string())
}

/// The setting of a query, with its default.
macro_rules! query {
    ($name:literal, $query:ident, $returns:literal) => {
        Setting {
            path: concat!("prometheus.queries.", $name),
            kind: Kind::Text,
            help: concat!("PromQL query for ", $returns),
            default: |_| Some(Query::$query.default_promql().to_owned()),
            ..Setting::EMPTY
        }
    };
}

const MILLISECONDS: Kind = Kind::Integer { min: 0, max: 86_400_000 };

pub const SCHEMA: Schema = Schema {
    program: "oprc-crm",
    about: "Class Runtime Manager: reconciles the ClassRuntimes of one Kubernetes cluster",
    env_prefix: "OPRC_CRM_",
    root: Some("crm"),
    profile: "profile",
    settings: SETTINGS,
    aliases: &[
        ("nfr_enforcement.check_interval", "nfr.interval"),
        ("nfr_enforcement.prometheus_url", "prometheus.url"),
        ("nfr_enforcement.enforcement_rules.throughput.max_replicas", "limits.max_replicas"),
        ("nfr_enforcement.enforcement_rules.throughput.cooldown_period", "enforcement.cooldown"),
    ],
    rejected: &[
        ("kubernetes.crd_group", "the group is oaas.io"),
        ("kubernetes.crd_version", "the version is v1alpha1"),
        ("kubernetes.watch_timeout", "watches are restarted automatically"),
        (
            "environments",
            "environments are not supported yet; the environment of a class is only a name",
        ),
        ("templates.load_on_start", "custom templates are not supported yet"),
        ("templates.path", "custom templates are not supported yet"),
        ("templates.selection_timeout", "template selection has no timeout"),
        ("package_manager", "CRM never calls PM; PM opens the status stream"),
        ("monitoring.enabled", "metrics are always enabled"),
        ("monitoring.metrics_path", "metrics are served at /metrics"),
        ("monitoring.metrics_interval", "metrics are updated on each event"),
        ("monitoring.health_path", "health is served at /health/live and /health/ready"),
        ("performance.cache_size", "caches hold all watched objects"),
        ("performance.cache_ttl", "caches are updated by watches and do not expire"),
        (
            "logging.audit_enabled",
            "use the audit log of the API server, which names CRM's service account",
        ),
        (
            "logging.audit_path",
            "use the audit log of the API server, which names CRM's service account",
        ),
        ("odgm.defaults", "defaults are derived from the requirements of the class"),
        ("odgm.collection_templates", "defaults are derived from the requirements of the class"),
        ("odgm.partition_strategies", "the number of partitions is derived from the throughput"),
        ("odgm.health_checks", "the data grid is probed by gRPC health checks"),
        (
            "nfr_enforcement.enforcement_rules.throughput.violation_threshold",
            "the throughput of a class is a requirement, not a share of one",
        ),
        (
            "nfr_enforcement.enforcement_rules.throughput.scale_factor",
            "the number of replicas is computed; enforcement.max_replica_delta bounds a change",
        ),
        (
            "nfr_enforcement.enforcement_rules.latency",
            "latency is a requirement of each class, and enforcement is set by nfr.enforcement of the class",
        ),
    ],
};

/// The only metrics provider; any other value of `prometheus.provider` causes a warning.
pub(super) const PROVIDER: &str = "prometheus-operator";

const SETTINGS: &[Setting] = &[
    Setting {
        path: "profile",
        env: &["OPRC_CRM_PROFILE"],
        kind: Kind::OneOf(&Profile::NAMES),
        help: "Set of defaults: for development, for scarce resources (edge), or for production (full)",
        default: |_| Some("dev".to_owned()),
    },
    Setting {
        path: "server.host",
        env: &["OPRC_CRM_SERVER_HOST"],
        kind: Kind::Text,
        help: "IP address to listen on; default: all addresses in a container, loopback elsewhere",
        ..Setting::EMPTY
    },
    Setting {
        path: "server.port",
        env: &["HTTP_PORT", "GRPC_PORT", "OPRC_CRM_SERVER_PORT"],
        kind: Kind::Integer { min: 0, max: 65_535 },
        help: "Port for HTTP and gRPC",
        default: |_| Some("8088".to_owned()),
    },
    Setting {
        path: "server.shutdown_timeout",
        env: &["OPRC_CRM_SERVER_SHUTDOWN_TIMEOUT"],
        kind: Kind::Duration,
        help: "Maximum time for open requests to finish at shutdown",
        default: |_| Some("10s".to_owned()),
    },
    Setting {
        path: "server.max_concurrent_calls",
        env: &["OPRC_CRM_SERVER_MAX_CONCURRENT_CALLS"],
        kind: Kind::Integer { min: 1, max: 1_000_000 },
        help: "Maximum number of concurrent gRPC calls; further ones fail with RESOURCE_EXHAUSTED",
        default: |_| Some("1024".to_owned()),
    },
    Setting {
        path: "kubernetes.namespace",
        env: &["OPRC_CRM_K8S_NAMESPACE"],
        kind: Kind::Text,
        help: "Namespace of classes that specify none; default: CRM's own, or that of the kubeconfig",
        ..Setting::EMPTY
    },
    Setting {
        path: "kubernetes.scope",
        env: &["OPRC_CRM_K8S_SCOPE"],
        kind: Kind::OneOf(&["cluster", "namespace"]),
        help: "Whether CRM watches the whole cluster or only its namespace",
        default: |_| Some("cluster".to_owned()),
    },
    Setting {
        path: "kubernetes.lease",
        env: &["OPRC_CRM_K8S_LEASE"],
        kind: Kind::Text,
        help: "Name of the Lease for leader election",
        default: |_| Some("oprc-crm".to_owned()),
    },
    Setting {
        path: "kubernetes.lease_namespace",
        env: &["OPRC_CRM_K8S_LEASE_NAMESPACE"],
        kind: Kind::Text,
        help: "Namespace of the Lease; default: CRM's own. Outside of the cluster with scope cluster: oaas-system if it exists, otherwise the kubeconfig's namespace",
        ..Setting::EMPTY
    },
    Setting {
        path: "features.odgm",
        env: &["OPRC_CRM_FEATURES_ODGM"],
        kind: Kind::Bool,
        help: "Whether classes may have a data grid (ODGM)",
        default: only_full,
    },
    Setting {
        path: "features.hpa",
        env: &["OPRC_CRM_FEATURES_HPA"],
        kind: Kind::Bool,
        help: "Whether functions with different minimum and maximum scale get a HorizontalPodAutoscaler",
        default: only_full,
    },
    Setting {
        path: "features.knative",
        env: &["OPRC_CRM_FEATURES_KNATIVE"],
        kind: Kind::Bool,
        help: "Whether Knative is used if the cluster has it",
        default: |_| Some("true".to_owned()),
    },
    Setting {
        path: "features.leader_election",
        env: &["OPRC_CRM_FEATURES_LEADER_ELECTION"],
        kind: Kind::Bool,
        help: "Whether replicas elect a leader; turn it off only if there is exactly one replica",
        default: |_| Some("true".to_owned()),
    },
    Setting {
        path: "features.prometheus",
        env: &["OPRC_CRM_FEATURES_PROMETHEUS"],
        kind: Kind::Bool,
        help: "Whether CRM reads metrics of functions and data grids from Prometheus",
        default: only_full,
    },
    Setting {
        path: "features.nfr_enforcement",
        env: &["OPRC_CRM_FEATURES_NFR_ENFORCEMENT"],
        kind: Kind::Bool,
        help: "Whether recommendations are applied to classes with enforcement mode enforce; otherwise they are only reported",
        default: not_dev,
    },
    Setting {
        path: "templates.default_template",
        env: &["OPRC_CRM_TEMPLATES_DEFAULT_TEMPLATE"],
        kind: Kind::Text,
        help: "Template of classes that match no other; default: k8s_deployment",
        ..Setting::EMPTY
    },
    Setting {
        path: "templates.drain",
        env: &["OPRC_CRM_TEMPLATES_DRAIN"],
        kind: Kind::Duration,
        help: "Time that workloads keep serving after a change of template has replaced them",
        default: |profile| seconds(platform(profile).drain),
    },
    Setting {
        path: "templates.floors.k8s_deployment_ms",
        env: &["OPRC_CRM_TEMPLATES_FLOORS_K8S_DEPLOYMENT_MS"],
        kind: MILLISECONDS,
        help: "Lowest latency in milliseconds that k8s_deployment can guarantee",
        default: |profile| Some(platform(profile).floors.k8s_deployment.to_string()),
    },
    Setting {
        path: "templates.floors.knative_warm_ms",
        env: &["OPRC_CRM_TEMPLATES_FLOORS_KNATIVE_WARM_MS"],
        kind: MILLISECONDS,
        help: "Lowest latency in milliseconds that knative can guarantee with a minimum scale of at least 1",
        default: |profile| Some(platform(profile).floors.knative_warm.to_string()),
    },
    Setting {
        path: "templates.floors.knative_cold_ms",
        env: &["OPRC_CRM_TEMPLATES_FLOORS_KNATIVE_COLD_MS"],
        kind: MILLISECONDS,
        help: "Lowest latency in milliseconds that knative can guarantee when it scales from zero",
        default: |profile| Some(platform(profile).floors.knative_cold.to_string()),
    },
    Setting {
        path: "templates.knative_max_timeout",
        env: &["OPRC_CRM_TEMPLATES_KNATIVE_MAX_TIMEOUT"],
        kind: Kind::Duration,
        help: "Maximum request timeout that Knative accepts: its max-revision-timeout-seconds",
        default: |profile| seconds(platform(profile).knative_timeout),
    },
    Setting {
        path: "performance.max_concurrent_deployments",
        env: &["OPRC_CRM_PERFORMANCE_MAX_CONCURRENT_DEPLOYMENTS"],
        kind: Kind::Integer { min: 1, max: 10_000 },
        help: "Maximum number of classes that are reconciled concurrently",
        default: |_| Some("16".to_owned()),
    },
    Setting {
        path: "performance.deployment_timeout",
        env: &["OPRC_CRM_PERFORMANCE_DEPLOYMENT_TIMEOUT"],
        kind: Kind::Duration,
        help: "Maximum time for a class to become Available, unless the class specifies one",
        default: |profile| seconds(platform(profile).progress_deadline),
    },
    Setting {
        path: "prometheus.provider",
        env: &["OPRC_CRM_PROM_PROVIDER"],
        kind: Kind::Text,
        help: "Kind of metrics provider; others than prometheus-operator are ignored with a warning",
        default: |_| Some(PROVIDER.to_owned()),
    },
    Setting {
        path: "prometheus.url",
        env: &["OPRC_CRM_PROM_URL"],
        kind: Kind::Text,
        help: "Base URL of the Prometheus HTTP API, such as http://prometheus.monitoring:9090, with its path prefix",
        ..Setting::EMPTY
    },
    Setting {
        path: "prometheus.match_labels",
        env: &["OPRC_CRM_PROM_MATCH_LABELS"],
        kind: Kind::List,
        help: "Labels (key=value) of ServiceMonitors and PodMonitors, by which the Prometheus Operator selects them",
        ..Setting::EMPTY
    },
    Setting {
        path: "prometheus.scrape_kind",
        env: &["OPRC_CRM_PROM_SCRAPE_KIND"],
        kind: Kind::OneOf(&["auto", "service", "pod", "none"]),
        help: "Monitors that CRM creates: ServiceMonitors, PodMonitors, none, or auto, which creates none for Knative",
        default: |_| Some("auto".to_owned()),
    },
    Setting {
        path: "prometheus.scrape_interval",
        env: &["OPRC_CRM_PROM_SCRAPE_INTERVAL"],
        kind: Kind::Duration,
        help: "Scrape interval of the monitors that CRM creates, or the one that is configured elsewhere; rates are taken over up to four times as long",
        default: |_| Some("15s".to_owned()),
    },
    Setting {
        path: "prometheus.query_timeout",
        env: &["OPRC_CRM_PROM_QUERY_TIMEOUT_SECS"],
        kind: Kind::Duration,
        help: "Maximum time of a query, including retries",
        default: |_| Some("5s".to_owned()),
    },
    Setting {
        path: "prometheus.range",
        env: &["OPRC_CRM_PROM_RANGE"],
        kind: Kind::Duration,
        help: "Time that queries look back; at least enforcement.stability",
        default: |_| Some("10m".to_owned()),
    },
    Setting {
        path: "prometheus.step",
        env: &["OPRC_CRM_PROM_STEP"],
        kind: Kind::Duration,
        help: "Time between two values of a query; values older than three steps are stale",
        default: |_| Some("30s".to_owned()),
    },
    Setting {
        path: "prometheus.resource_range",
        env: &["OPRC_CRM_PROM_RESOURCE_RANGE"],
        kind: Kind::Duration,
        help: "Time that recommendations of CPU and memory look back; they are lowered only after as long a history",
        default: |_| Some("24h".to_owned()),
    },
    Setting {
        path: "prometheus.ca_file",
        env: &["OPRC_CRM_PROM_CA_FILE"],
        kind: Kind::Path,
        help: "PEM file with the CA certificates that verify Prometheus; default: those of the system; read for each connection",
        ..Setting::EMPTY
    },
    Setting {
        path: "prometheus.token_file",
        env: &["OPRC_CRM_PROM_TOKEN_FILE"],
        kind: Kind::Path,
        help: "File with the bearer token for Prometheus; read for each request",
        ..Setting::EMPTY
    },
    Setting {
        path: "prometheus.client_certificate",
        env: &["OPRC_CRM_PROM_CLIENT_CERTIFICATE"],
        kind: Kind::Path,
        help: "PEM file with the client certificate chain for Prometheus; read for each connection",
        ..Setting::EMPTY
    },
    Setting {
        path: "prometheus.client_key",
        env: &["OPRC_CRM_PROM_CLIENT_KEY"],
        kind: Kind::Path,
        help: "PEM file with the private key of the client certificate; read for each connection",
        ..Setting::EMPTY
    },
    query!(
        "proxy_requests",
        ProxyRequests,
        "requests per second by namespace, pod and outcome, from CRM's proxy"
    ),
    query!(
        "proxy_latency",
        ProxyLatency,
        "rates of latency buckets by namespace, pod and le, from CRM's proxy"
    ),
    query!(
        "proxy_in_flight",
        ProxyInFlight,
        "requests in progress by namespace and pod, from CRM's proxy"
    ),
    query!(
        "proxy_queue_length",
        ProxyQueueLength,
        "queued requests by namespace and pod, from CRM's proxy"
    ),
    query!(
        "proxy_rejected",
        ProxyRejected,
        "rejected requests per second by namespace and pod, from CRM's proxy"
    ),
    query!(
        "proxy_hard_latency_breaches",
        ProxyHardLatencyBreaches,
        "requests per second above the hard latency by namespace and pod, from CRM's proxy"
    ),
    query!(
        "knative_requests",
        KnativeRequests,
        "requests per second by namespace, pod and http_response_status_code, from Knative's queue-proxy"
    ),
    query!(
        "knative_latency",
        KnativeLatency,
        "rates of latency buckets by namespace, pod and le, from Knative's queue-proxy"
    ),
    query!(
        "knative_in_flight",
        KnativeInFlight,
        "requests in progress by namespace and pod, from Knative's queue-proxy"
    ),
    query!(
        "knative_queue_length",
        KnativeQueueLength,
        "queued requests by namespace and pod, from Knative's queue-proxy"
    ),
    query!(
        "own_requests",
        OwnRequests,
        "requests per second by namespace, pod and status, from the function's own metrics"
    ),
    query!(
        "own_latency",
        OwnLatency,
        "rates of latency buckets by namespace, pod and le, from the function's own metrics"
    ),
    query!("cpu", Cpu, "CPU cores in use by namespace, pod and container"),
    query!("memory", Memory, "working set in bytes by namespace, pod and container"),
    query!(
        "cpu_throttling",
        CpuThrottling,
        "share of throttled CPU periods by namespace, pod and container"
    ),
    query!(
        "oom_events",
        OomEvents,
        "out-of-memory kills in the rate window by namespace, pod and container"
    ),
    Setting {
        path: "nfr.interval",
        env: &["OPRC_CRM_ANALYZER_INTERVAL_SECS"],
        kind: Kind::Duration,
        help: "Time between two evaluations of the requirements of classes",
        default: |_| Some("60s".to_owned()),
    },
    Setting {
        path: "nfr.urgent_interval",
        env: &["OPRC_CRM_ANALYZER_URGENT_INTERVAL_SECS"],
        kind: Kind::Duration,
        help: "Time between two evaluations while a requirement is violated or about to be; at most nfr.interval",
        default: |_| Some("15s".to_owned()),
    },
    Setting {
        path: "nfr.cpu_per_pod_m",
        env: &["OPRC_CRM_REQ_CPU_PER_POD_M"],
        kind: Kind::Integer { min: 1, max: 1_000_000 },
        help: "CPU in millicores that one replica is assumed to provide while its capacity is not known",
        default: |_| Some("500".to_owned()),
    },
    Setting {
        path: "enforcement.stability",
        env: &["OPRC_CRM_ENFORCEMENT_STABILITY_SECS"],
        kind: Kind::Duration,
        help: "Time that a recommendation must be stable before it is applied, unless it is urgent",
        default: |_| Some("180s".to_owned()),
    },
    Setting {
        path: "enforcement.cooldown",
        env: &["OPRC_CRM_ENFORCEMENT_COOLDOWN_SECS"],
        kind: Kind::Duration,
        help: "Minimum time between two changes of a component, unless the second is urgent",
        default: |_| Some("120s".to_owned()),
    },
    Setting {
        path: "enforcement.max_replica_delta",
        env: &["OPRC_CRM_ENFORCEMENT_MAX_REPLICA_DELTA"],
        kind: Kind::Integer { min: 1, max: 1000 },
        help: "Maximum change of replicas at once in percent, unless it is urgent",
        default: |_| Some("30".to_owned()),
    },
    Setting {
        path: "enforcement.dimensions",
        env: &["OPRC_CRM_ENFORCEMENT_DIMENSIONS"],
        kind: Kind::List,
        help: "What enforcement may change: replicas, memory, cpu and template; a class can restrict it further",
        default: |profile| {
            let all = "replicas,memory,cpu,template";
            Some(if profile == "edge" { "replicas" } else { all }.to_owned())
        },
    },
    Setting {
        path: "enforcement.frozen",
        env: &["OPRC_CRM_ENFORCEMENT_FROZEN"],
        kind: Kind::Bool,
        help: "Whether enforcement changes nothing for now; what it applied stays. The ConfigMap enforcement.configmap can freeze it, too",
        default: |_| Some("false".to_owned()),
    },
    Setting {
        path: "enforcement.configmap",
        env: &["OPRC_CRM_ENFORCEMENT_CONFIGMAP"],
        kind: Kind::Text,
        help: "ConfigMap in the namespace of the Lease (outside of the cluster with scope cluster: oaas-system) whose key frozen freezes enforcement while it is true; CRM's Role must name it",
        default: |_| Some("oprc-crm-enforcement".to_owned()),
    },
    Setting {
        path: "limits.max_replicas",
        env: &["OPRC_CRM_LIMITS_MAX_REPLICAS"],
        kind: Kind::Integer { min: 1, max: 10_000 },
        help: "Maximum number of replicas that enforcement sets for a component",
        default: |_| Some("50".to_owned()),
    },
    Setting {
        path: "limits.max_memory",
        env: &["OPRC_CRM_LIMITS_MAX_MEMORY"],
        kind: Kind::Text,
        help: "Maximum memory of an instance that enforcement sets, for request and limit; what a class specifies may be more",
        default: |_| Some("4Gi".to_owned()),
    },
    Setting {
        path: "limits.max_cpu",
        env: &["OPRC_CRM_LIMITS_MAX_CPU"],
        kind: Kind::Text,
        help: "Maximum CPU of an instance that enforcement sets, for request and limit; what a class specifies may be more",
        default: |_| Some("4".to_owned()),
    },
    Setting {
        path: "hpa.cpu_percent",
        env: &["OPRC_CRM_HPA_CPU_PERCENT"],
        kind: Kind::Integer { min: 1, max: 1000 },
        help: "CPU utilisation that HorizontalPodAutoscalers of functions keep, in percent of the CPU request",
        default: |_| Some("70".to_owned()),
    },
    Setting {
        path: "hpa.scale_up_window",
        env: &["OPRC_CRM_HPA_SCALE_UP_WINDOW"],
        kind: Kind::Duration,
        help: "Stabilization window of HorizontalPodAutoscalers for scaling up, at most 1h",
        default: |profile| seconds(platform(profile).scaling.up_window),
    },
    Setting {
        path: "hpa.scale_up_percent",
        env: &["OPRC_CRM_HPA_SCALE_UP_PERCENT"],
        kind: Kind::Integer { min: 1, max: 10_000 },
        help: "Largest step up of HorizontalPodAutoscalers within 15 s in percent; if hpa.scale_up_pods allows a larger one, that applies",
        default: |_| Some("100".to_owned()),
    },
    Setting {
        path: "hpa.scale_up_pods",
        env: &["OPRC_CRM_HPA_SCALE_UP_PODS"],
        kind: Kind::Integer { min: 1, max: 10_000 },
        help: "Largest step up of HorizontalPodAutoscalers within 15 s in pods; if hpa.scale_up_percent allows a larger one, that applies",
        default: |_| Some("4".to_owned()),
    },
    Setting {
        path: "hpa.scale_down_window",
        env: &["OPRC_CRM_HPA_SCALE_DOWN_WINDOW"],
        kind: Kind::Duration,
        help: "Stabilization window of HorizontalPodAutoscalers for scaling down, at most 1h",
        default: |profile| seconds(platform(profile).scaling.down_window),
    },
    Setting {
        path: "hpa.scale_down_percent",
        env: &["OPRC_CRM_HPA_SCALE_DOWN_PERCENT"],
        kind: Kind::Integer { min: 1, max: 100 },
        help: "Largest step down of HorizontalPodAutoscalers within a minute, in percent",
        default: |_| Some("10".to_owned()),
    },
    Setting {
        path: "odgm.image",
        env: &["OPRC_CRM_ODGM_IMAGE"],
        kind: Kind::Text,
        help: "Image of data grids that specify none; default: that of the profile",
        ..Setting::EMPTY
    },
    Setting {
        path: "odgm.disk",
        env: &["OPRC_CRM_ODGM_DISK"],
        kind: Kind::Text,
        help: "Size of the volume of each grid node of a persistent data grid",
        default: |profile| Some(platform(profile).odgm_disk),
    },
    Setting {
        path: "proxy.image",
        env: &["OPRC_CRM_PROXY_IMAGE"],
        kind: Kind::Text,
        help: "Image of the proxy in front of functions, which is also the init container that waits for the data grid",
        default: |profile| Some(platform(profile).proxy_image),
    },
    Setting {
        path: "odgm.container_resources.function.requests.cpu",
        env: &["OPRC_CRM_FUNCTION_REQUESTS_CPU"],
        kind: Kind::Text,
        help: "CPU request of functions that specify none",
        default: |profile| platform(profile).function_sizes.requests.cpu,
    },
    Setting {
        path: "odgm.container_resources.function.requests.memory",
        env: &["OPRC_CRM_FUNCTION_REQUESTS_MEMORY"],
        kind: Kind::Text,
        help: "Memory request of functions that specify none",
        default: |profile| platform(profile).function_sizes.requests.memory,
    },
    Setting {
        path: "odgm.container_resources.function.limits.cpu",
        env: &["OPRC_CRM_FUNCTION_LIMITS_CPU"],
        kind: Kind::Text,
        help: "CPU limit of functions that specify none",
        default: |profile| platform(profile).function_sizes.limits.cpu,
    },
    Setting {
        path: "odgm.container_resources.function.limits.memory",
        env: &["OPRC_CRM_FUNCTION_LIMITS_MEMORY"],
        kind: Kind::Text,
        help: "Memory limit of functions that specify none",
        default: |profile| platform(profile).function_sizes.limits.memory,
    },
    Setting {
        path: "odgm.container_resources.odgm.requests.cpu",
        env: &["OPRC_CRM_ODGM_REQUESTS_CPU"],
        kind: Kind::Text,
        help: "CPU request of grid nodes (pods of data grids)",
        default: |profile| platform(profile).odgm_sizes.requests.cpu,
    },
    Setting {
        path: "odgm.container_resources.odgm.requests.memory",
        env: &["OPRC_CRM_ODGM_REQUESTS_MEMORY"],
        kind: Kind::Text,
        help: "Memory request of grid nodes (pods of data grids)",
        default: |profile| platform(profile).odgm_sizes.requests.memory,
    },
    Setting {
        path: "odgm.container_resources.odgm.limits.cpu",
        env: &["OPRC_CRM_ODGM_LIMITS_CPU"],
        kind: Kind::Text,
        help: "CPU limit of grid nodes (pods of data grids)",
        default: |profile| platform(profile).odgm_sizes.limits.cpu,
    },
    Setting {
        path: "odgm.container_resources.odgm.limits.memory",
        env: &["OPRC_CRM_ODGM_LIMITS_MEMORY"],
        kind: Kind::Text,
        help: "Memory limit of grid nodes (pods of data grids)",
        default: |profile| platform(profile).odgm_sizes.limits.memory,
    },
    Setting {
        path: "security.mtls",
        env: &["OPRC_CRM_SECURITY_MTLS"],
        kind: Kind::Bool,
        help: "Whether gRPC clients must present a certificate",
        default: only_full,
    },
    Setting {
        path: "security.token_file",
        env: &["OPRC_CRM_SECURITY_TOKEN_FILE"],
        kind: Kind::Path,
        help: "File with bearer tokens, one per line; gRPC clients must send one of them; reloaded when it changes",
        ..Setting::EMPTY
    },
    Setting {
        path: "security.tls.certificate",
        env: &["OPRC_CRM_SECURITY_TLS_CERTIFICATE"],
        kind: Kind::Path,
        help: "PEM file with the server's certificate chain; reloaded when it changes",
        ..Setting::EMPTY
    },
    Setting {
        path: "security.tls.key",
        env: &["OPRC_CRM_SECURITY_TLS_KEY"],
        kind: Kind::Path,
        help: "PEM file with the private key of the certificate; reloaded when it changes",
        ..Setting::EMPTY
    },
    Setting {
        path: "security.tls.client_ca",
        env: &["OPRC_CRM_SECURITY_TLS_CLIENT_CA"],
        kind: Kind::Path,
        help: "PEM file with the CA certificates that verify client certificates; reloaded when it changes",
        ..Setting::EMPTY
    },
    Setting {
        path: "logging.level",
        env: &["RUST_LOG", "SERVICE_LOG", "OPRC_CRM_LOG"],
        kind: Kind::Text,
        help: "Log filter, such as info or oprc_crm=debug,info",
        default: |profile| {
            let level = if profile == "dev" { "info,oprc_crm=debug" } else { "info" };
            Some(level.to_owned())
        },
    },
    Setting {
        path: "logging.format",
        env: &["OPRC_CRM_LOG_FORMAT"],
        kind: Kind::OneOf(&["json", "pretty"]),
        help: "Format of log lines",
        default: |profile| Some(if profile == "dev" { "pretty" } else { "json" }.to_owned()),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_is_valid() {
        assert_eq!(SCHEMA.errors(), Vec::<String>::new());
    }

    #[test]
    fn every_query_has_its_setting() {
        let settings: Vec<_> = SETTINGS
            .iter()
            .filter_map(|it| {
                Some((it.path.strip_prefix("prometheus.queries.")?, (it.default)("dev")?))
            })
            .collect();
        let queries = Query::ALL.map(|it| (it.name(), it.default_promql().to_owned()));
        assert_eq!(settings, queries);
    }
}
