//! The settings of PM.

use oprc_config::{Kind, Schema, Setting};

pub const SCHEMA: Schema = Schema {
    program: "oprc-pm",
    about: "Package Manager: stores packages, plans deployments and rolls them out to clusters",
    env_prefix: "OPRC_PM_",
    root: Some("pm"),
    profile: "profile",
    settings: SETTINGS,
    aliases: &[],
    rejected: &[
        ("crm.clusters", "clusters may contain secrets: use crm.clusters_file"),
        ("store.etcd.password", "use store.etcd.password_file"),
    ],
};

const SETTINGS: &[Setting] = &[
    Setting {
        path: "profile",
        env: &["OPRC_PM_PROFILE"],
        kind: Kind::OneOf(&["dev", "full"]),
        help: "Set of defaults: for development or for production (full)",
        default: |_| Some("dev".to_owned()),
    },
    Setting {
        path: "server.host",
        env: &["OPRC_PM_SERVER_HOST"],
        kind: Kind::Text,
        help: "IP address to listen on; default: all addresses in a container, loopback elsewhere",
        ..Setting::EMPTY
    },
    Setting {
        path: "server.port",
        env: &["HTTP_PORT", "OPRC_PM_SERVER_PORT"],
        kind: Kind::Integer { min: 0, max: 65_535 },
        help: "Port for HTTP",
        default: |_| Some("8080".to_owned()),
    },
    Setting {
        path: "server.shutdown_timeout",
        env: &["OPRC_PM_SERVER_SHUTDOWN_TIMEOUT"],
        kind: Kind::Duration,
        help: "Maximum time for open requests to finish at shutdown",
        default: |_| Some("10s".to_owned()),
    },
    Setting {
        path: "server.max_body_bytes",
        env: &["OPRC_PM_SERVER_MAX_BODY_BYTES"],
        kind: Kind::Integer { min: 1024, max: 1 << 20 },
        help: "Maximum size of a request body in bytes; larger ones get status 413",
        default: |_| Some((1_u64 << 20).to_string()),
    },
    Setting {
        path: "server.max_concurrent_requests",
        env: &["OPRC_PM_SERVER_MAX_CONCURRENT_REQUESTS"],
        kind: Kind::Integer { min: 1, max: 1_000_000 },
        help: "Maximum number of concurrent requests; further ones get status 503",
        default: |_| Some("1024".to_owned()),
    },
    Setting {
        path: "server.max_event_streams",
        env: &["OPRC_PM_SERVER_MAX_EVENT_STREAMS"],
        kind: Kind::Integer { min: 1, max: 100_000 },
        help: "Maximum number of concurrent event streams; further ones get status 503",
        default: |_| Some("256".to_owned()),
    },
    Setting {
        path: "server.request_timeout",
        env: &["OPRC_PM_SERVER_REQUEST_TIMEOUT"],
        kind: Kind::Duration,
        help: "Timeout for starting a response; 504 when exceeded",
        default: |_| Some("30s".to_owned()),
    },
    Setting {
        path: "server.rate_limit",
        env: &["OPRC_PM_SERVER_RATE_LIMIT"],
        kind: Kind::Integer { min: 0, max: 1_000_000 },
        help: "Maximum requests per second of one caller; further ones get status 429; 0 disables the limit",
        default: |_| Some("1000".to_owned()),
    },
    Setting {
        path: "server.rate_burst",
        env: &["OPRC_PM_SERVER_RATE_BURST"],
        kind: Kind::Integer { min: 1, max: 1_000_000 },
        help: "Maximum number of requests that one caller can send in a burst above the rate limit",
        default: |_| Some("2000".to_owned()),
    },
    Setting {
        path: "server.cors_origins",
        env: &["OPRC_PM_SERVER_CORS_ORIGINS"],
        kind: Kind::List,
        help: "Origins whose pages may use the API, such as https://console.example.org; default: none",
        ..Setting::EMPTY
    },
    Setting {
        path: "server.docs",
        env: &["OPRC_PM_SERVER_DOCS"],
        kind: Kind::Bool,
        help: "Whether /docs serves an interactive API reference; browsers load its script from cdn.jsdelivr.net",
        default: |_| Some("true".to_owned()),
    },
    Setting {
        path: "store.kind",
        env: &["OPRC_PM_STORE_KIND", "OPRC_PM_STORAGE_TYPE"],
        kind: Kind::OneOf(&["redb", "etcd", "memory"]),
        help: "Store back end: a file (redb), etcd, or memory for tests",
        default: |_| Some("redb".to_owned()),
    },
    Setting {
        path: "store.path",
        env: &["OPRC_PM_STORE_PATH"],
        kind: Kind::Path,
        help: "File of the redb store",
        default: |_| Some("oprc-pm.redb".to_owned()),
    },
    Setting {
        path: "store.cache_bytes",
        env: &["OPRC_PM_STORE_CACHE_BYTES"],
        kind: Kind::Integer { min: 1 << 20, max: 1 << 40 },
        help: "Maximum cache size of the redb store in bytes",
        default: |_| Some((64_u64 << 20).to_string()),
    },
    Setting {
        path: "store.deadline",
        env: &["OPRC_PM_STORE_DEADLINE"],
        kind: Kind::Duration,
        help: "Deadline of each call to the store",
        default: |_| Some("10s".to_owned()),
    },
    Setting {
        path: "store.etcd.endpoints",
        env: &["OPRC_PM_STORE_ETCD_ENDPOINTS", "OPRC_PM_ETCD_ENDPOINTS"],
        kind: Kind::List,
        help: "etcd endpoints, comma-separated: http://HOST:PORT or https://HOST:PORT",
        ..Setting::EMPTY
    },
    Setting {
        path: "store.etcd.root",
        env: &["OPRC_PM_STORE_ETCD_ROOT"],
        kind: Kind::Text,
        help: "Prefix of all keys in etcd",
        default: |_| Some("oprc".to_owned()),
    },
    Setting {
        path: "store.etcd.ca",
        env: &["OPRC_PM_STORE_ETCD_CA"],
        kind: Kind::Path,
        help: "PEM file with the authorities of etcd's certificate",
        ..Setting::EMPTY
    },
    Setting {
        path: "store.etcd.certificate",
        env: &["OPRC_PM_STORE_ETCD_CERTIFICATE"],
        kind: Kind::Path,
        help: "PEM file with PM's client certificate for etcd",
        ..Setting::EMPTY
    },
    Setting {
        path: "store.etcd.key",
        env: &["OPRC_PM_STORE_ETCD_KEY"],
        kind: Kind::Path,
        help: "PEM file with the private key of that certificate",
        ..Setting::EMPTY
    },
    Setting {
        path: "store.etcd.server_name",
        env: &["OPRC_PM_STORE_ETCD_SERVER_NAME"],
        kind: Kind::Text,
        help: "Name in etcd's certificate, if it differs from the endpoint's host",
        ..Setting::EMPTY
    },
    Setting {
        path: "store.etcd.user",
        env: &["OPRC_PM_STORE_ETCD_USER"],
        kind: Kind::Text,
        help: "etcd user for password authentication",
        ..Setting::EMPTY
    },
    Setting {
        path: "store.etcd.password_file",
        env: &["OPRC_PM_STORE_ETCD_PASSWORD_FILE"],
        kind: Kind::Path,
        help: "File with the password of the etcd user; read for every login",
        ..Setting::EMPTY
    },
    Setting {
        path: "store.etcd.lease",
        env: &["OPRC_PM_STORE_ETCD_LEASE"],
        kind: Kind::Duration,
        help: "Time until another PM can take over the store of a PM that is dead or disconnected",
        default: |_| Some("10s".to_owned()),
    },
    Setting {
        path: "crm.clusters_file",
        env: &["OPRC_PM_CRM_CLUSTERS_FILE", "OPRC_PM_CLUSTERS_CONFIG"],
        kind: Kind::Path,
        help: "JSON or YAML file of clusters; OPRC_PM_CRM_CLUSTERS can hold the same, and variables such as OPRC_PM_CRM_<NAME>_URL set single fields",
        ..Setting::EMPTY
    },
    Setting {
        path: "crm.default_cluster",
        env: &["OPRC_PM_CRM_DEFAULT_CLUSTER"],
        kind: Kind::Text,
        help: "Cluster of deployments that name none; default: the clusters marked as default, or all",
        ..Setting::EMPTY
    },
    Setting {
        path: "crm.deadline",
        env: &["OPRC_PM_CRM_DEADLINE"],
        kind: Kind::Duration,
        help: "Deadline of each call to a CRM; calls that only read have at most 5 s",
        default: |_| Some("15s".to_owned()),
    },
    Setting {
        path: "deployments.progress_deadline",
        env: &["OPRC_PM_DEPLOYMENTS_PROGRESS_DEADLINE"],
        kind: Kind::Duration,
        help: "Maximum time for an all-or-nothing deployment to complete before it is rolled back",
        default: |_| Some("10m".to_owned()),
    },
    Setting {
        path: "deployments.unreachable_deadline",
        env: &["OPRC_PM_DEPLOYMENTS_UNREACHABLE_DEADLINE"],
        kind: Kind::Duration,
        help: "Maximum time that a cluster can be unreachable before an all-or-nothing deployment to it is rolled back",
        default: |_| Some("1m".to_owned()),
    },
    Setting {
        path: "deployments.default_environment",
        env: &["OPRC_PM_DEPLOYMENTS_DEFAULT_ENVIRONMENT"],
        kind: Kind::Text,
        help: "Environment of deployments that name none; empty: no environment",
        ..Setting::EMPTY
    },
    Setting {
        path: "security.auth",
        env: &["OPRC_PM_SECURITY_AUTH"],
        kind: Kind::OneOf(&["tokens", "off"]),
        help: "Whether callers need a token; off is only allowed on a loopback address",
        default: |_| Some("tokens".to_owned()),
    },
    Setting {
        path: "security.token_file",
        env: &["OPRC_PM_SECURITY_TOKEN_FILE"],
        kind: Kind::Path,
        help: "File with bearer tokens, one per line: [NAME] TOKEN role=viewer|deployer|admin [expires=TIME]; reloaded when it changes",
        ..Setting::EMPTY
    },
    Setting {
        path: "security.mtls",
        env: &["OPRC_PM_SECURITY_MTLS"],
        kind: Kind::Bool,
        help: "Whether callers must also present a client certificate",
        default: |_| Some("false".to_owned()),
    },
    Setting {
        path: "security.tls.certificate",
        env: &["OPRC_PM_SECURITY_TLS_CERTIFICATE"],
        kind: Kind::Path,
        help: "PEM file with the server's certificate chain; reloaded when it changes",
        ..Setting::EMPTY
    },
    Setting {
        path: "security.tls.key",
        env: &["OPRC_PM_SECURITY_TLS_KEY"],
        kind: Kind::Path,
        help: "PEM file with the private key of the certificate; reloaded when it changes",
        ..Setting::EMPTY
    },
    Setting {
        path: "security.tls.client_ca",
        env: &["OPRC_PM_SECURITY_TLS_CLIENT_CA"],
        kind: Kind::Path,
        help: "PEM file with the authorities of client certificates; reloaded when it changes",
        ..Setting::EMPTY
    },
    Setting {
        path: "logging.level",
        env: &["RUST_LOG", "SERVICE_LOG", "OPRC_PM_LOG"],
        kind: Kind::Text,
        help: "Log filter, such as info or oprc_pm=debug,info",
        default: |profile| {
            let level = if profile == "dev" { "info,oprc_pm=debug" } else { "info" };
            Some(level.to_owned())
        },
    },
    Setting {
        path: "logging.format",
        env: &["OPRC_PM_LOG_FORMAT"],
        kind: Kind::OneOf(&["json", "pretty"]),
        help: "Format of log lines",
        default: |profile| Some(if profile == "dev" { "pretty" } else { "json" }.to_owned()),
    },
];
