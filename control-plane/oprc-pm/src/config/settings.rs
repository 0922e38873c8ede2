//! The table of settings.

use oprc_config::{Kind, Schema, Setting};

/// Everything that PM can be told.
pub const SCHEMA: Schema = Schema {
    program: "oprc-pm",
    about: "Package Manager: keeps packages, plans deployments, and brings clusters to them",
    env_prefix: "OPRC_PM_",
    root: Some("pm"),
    profile: "profile",
    settings: SETTINGS,
    refused: &[
        ("crm.clusters", "clusters may have secrets: they go into crm.clusters_file"),
        ("store.etcd.password", "a password goes into store.etcd.password_file"),
    ],
};

const SETTINGS: &[Setting] = &[
    Setting {
        path: "profile",
        env: &["OPRC_PM_PROFILE"],
        kind: Kind::OneOf(&["dev", "full"]),
        help: "How logs are written: for a developer's machine, or for production",
        default: |_| Some("dev".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "server.host",
        env: &["OPRC_PM_SERVER_HOST"],
        kind: Kind::Text,
        help: "The address to listen on; left out, all of a container's own and loopback elsewhere",
        ..Setting::EMPTY
    },
    Setting {
        path: "server.port",
        env: &["HTTP_PORT", "OPRC_PM_SERVER_PORT"],
        kind: Kind::Integer { min: 0, max: 65_535 },
        help: "The port",
        default: |_| Some("8080".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "server.shutdown_timeout",
        env: &["OPRC_PM_SERVER_SHUTDOWN_TIMEOUT"],
        kind: Kind::Duration,
        help: "How long open requests may take to finish when PM stops",
        default: |_| Some("10s".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "server.max_body_bytes",
        env: &["OPRC_PM_SERVER_MAX_BODY_BYTES"],
        kind: Kind::Integer { min: 1024, max: 1 << 20 },
        help: "How long the body of a request may be; longer ones are 413",
        default: |_| Some((1_u64 << 20).to_string()),
        ..Setting::EMPTY
    },
    Setting {
        path: "server.max_concurrent_requests",
        env: &["OPRC_PM_SERVER_MAX_CONCURRENT_REQUESTS"],
        kind: Kind::Integer { min: 1, max: 1_000_000 },
        help: "How many requests are worked on at once; more are 503",
        default: |_| Some("1024".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "server.max_event_streams",
        env: &["OPRC_PM_SERVER_MAX_EVENT_STREAMS"],
        kind: Kind::Integer { min: 1, max: 100_000 },
        help: "How many event streams may be open; more are 503",
        default: |_| Some("256".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "server.request_timeout",
        env: &["OPRC_PM_SERVER_REQUEST_TIMEOUT"],
        kind: Kind::Duration,
        help: "How long a request may take until its answer begins; longer ones are 504",
        default: |_| Some("30s".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "server.rate_limit",
        env: &["OPRC_PM_SERVER_RATE_LIMIT"],
        kind: Kind::Integer { min: 0, max: 1_000_000 },
        help: "How many requests a second one caller may make in the long run; more are 429; 0 is no limit",
        default: |_| Some("1000".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "server.rate_burst",
        env: &["OPRC_PM_SERVER_RATE_BURST"],
        kind: Kind::Integer { min: 1, max: 1_000_000 },
        help: "How many requests one caller may make at once before the rate counts",
        default: |_| Some("2000".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "server.cors_origins",
        env: &["OPRC_PM_SERVER_CORS_ORIGINS"],
        kind: Kind::List,
        help: "Origins whose pages may use the API, such as https://console.example.org; left out, none",
        ..Setting::EMPTY
    },
    Setting {
        path: "server.docs",
        env: &["OPRC_PM_SERVER_DOCS"],
        kind: Kind::Bool,
        help: "Whether /docs serves a page to try the API; browsers load its script from cdn.jsdelivr.net",
        default: |_| Some("true".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "store.kind",
        env: &["OPRC_PM_STORE_KIND", "OPRC_PM_STORAGE_TYPE"],
        kind: Kind::OneOf(&["redb", "etcd", "memory"]),
        help: "Where everything is kept: a file, etcd, or (for tests) memory",
        default: |_| Some("redb".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "store.path",
        env: &["OPRC_PM_STORE_PATH"],
        kind: Kind::Path,
        help: "The file of a redb store",
        default: |_| Some("oprc-pm.redb".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "store.cache_bytes",
        env: &["OPRC_PM_STORE_CACHE_BYTES"],
        kind: Kind::Integer { min: 1 << 20, max: 1 << 40 },
        help: "How much of a redb store's file is kept in memory",
        default: |_| Some((64_u64 << 20).to_string()),
        ..Setting::EMPTY
    },
    Setting {
        path: "store.deadline",
        env: &["OPRC_PM_STORE_DEADLINE"],
        kind: Kind::Duration,
        help: "How long a call of the store may take",
        default: |_| Some("10s".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "store.etcd.endpoints",
        env: &["OPRC_PM_STORE_ETCD_ENDPOINTS", "OPRC_PM_ETCD_ENDPOINTS"],
        kind: Kind::List,
        help: "Where etcd is: http://HOST:PORT or https://HOST:PORT, separated by commas",
        ..Setting::EMPTY
    },
    Setting {
        path: "store.etcd.root",
        env: &["OPRC_PM_STORE_ETCD_ROOT"],
        kind: Kind::Text,
        help: "What all keys in etcd begin with",
        default: |_| Some("oprc".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "store.etcd.ca",
        env: &["OPRC_PM_STORE_ETCD_CA"],
        kind: Kind::Path,
        help: "Who signs etcd's certificate, as PEM",
        ..Setting::EMPTY
    },
    Setting {
        path: "store.etcd.certificate",
        env: &["OPRC_PM_STORE_ETCD_CERTIFICATE"],
        kind: Kind::Path,
        help: "PM's own certificate for etcd, as PEM",
        ..Setting::EMPTY
    },
    Setting {
        path: "store.etcd.key",
        env: &["OPRC_PM_STORE_ETCD_KEY"],
        kind: Kind::Path,
        help: "Its key, as PEM",
        ..Setting::EMPTY
    },
    Setting {
        path: "store.etcd.server_name",
        env: &["OPRC_PM_STORE_ETCD_SERVER_NAME"],
        kind: Kind::Text,
        help: "The name in etcd's certificate, if it isn't the host of the endpoint",
        ..Setting::EMPTY
    },
    Setting {
        path: "store.etcd.user",
        env: &["OPRC_PM_STORE_ETCD_USER"],
        kind: Kind::Text,
        help: "The user that etcd knows PM by",
        ..Setting::EMPTY
    },
    Setting {
        path: "store.etcd.password_file",
        env: &["OPRC_PM_STORE_ETCD_PASSWORD_FILE"],
        kind: Kind::Path,
        help: "A file with that user's password; it is reread",
        ..Setting::EMPTY
    },
    Setting {
        path: "store.etcd.lease",
        env: &["OPRC_PM_STORE_ETCD_LEASE"],
        kind: Kind::Duration,
        help: "How long a PM that is cut off or dead keeps another from driving",
        default: |_| Some("10s".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "crm.clusters_file",
        env: &["OPRC_PM_CRM_CLUSTERS_FILE", "OPRC_PM_CLUSTERS_CONFIG"],
        kind: Kind::Path,
        help: "A file of clusters, as JSON or YAML; OPRC_PM_CRM_CLUSTERS may hold the same, and OPRC_PM_CRM_<NAME>_URL and others parts of it",
        ..Setting::EMPTY
    },
    Setting {
        path: "crm.default_cluster",
        env: &["OPRC_PM_CRM_DEFAULT_CLUSTER"],
        kind: Kind::Text,
        help: "The cluster of deployments that name none; left out, those that are marked, or all",
        ..Setting::EMPTY
    },
    Setting {
        path: "crm.deadline",
        env: &["OPRC_PM_CRM_DEADLINE"],
        kind: Kind::Duration,
        help: "How long a call of a CRM may take",
        default: |_| Some("15s".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "deployments.progress_deadline",
        env: &["OPRC_PM_DEPLOYMENTS_PROGRESS_DEADLINE"],
        kind: Kind::Duration,
        help: "How long an all-or-nothing deployment may be on its way before it is rolled back",
        default: |_| Some("10m".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "deployments.unreachable_deadline",
        env: &["OPRC_PM_DEPLOYMENTS_UNREACHABLE_DEADLINE"],
        kind: Kind::Duration,
        help: "How long a cluster may be away before an all-or-nothing deployment to it is rolled back",
        default: |_| Some("1m".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "deployments.default_environment",
        env: &["OPRC_PM_DEPLOYMENTS_DEFAULT_ENVIRONMENT"],
        kind: Kind::Text,
        help: "The environment of deployments that name none; left out, each cluster's own",
        ..Setting::EMPTY
    },
    Setting {
        path: "security.auth",
        env: &["OPRC_PM_SECURITY_AUTH"],
        kind: Kind::OneOf(&["tokens", "off"]),
        help: "Whether callers need a token; off goes with a loopback address only",
        default: |_| Some("tokens".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "security.token_file",
        env: &["OPRC_PM_SECURITY_TOKEN_FILE"],
        kind: Kind::Path,
        help: "A file of bearer tokens, [NAME] TOKEN role=viewer|deployer|admin [expires=TIME] to a line; it is reread",
        ..Setting::EMPTY
    },
    Setting {
        path: "security.mtls",
        env: &["OPRC_PM_SECURITY_MTLS"],
        kind: Kind::Bool,
        help: "Whether callers need a certificate, too",
        default: |_| Some("false".to_owned()),
        ..Setting::EMPTY
    },
    Setting {
        path: "security.tls.certificate",
        env: &["OPRC_PM_SECURITY_TLS_CERTIFICATE"],
        kind: Kind::Path,
        help: "The certificate of the port, as PEM; it is reread",
        ..Setting::EMPTY
    },
    Setting {
        path: "security.tls.key",
        env: &["OPRC_PM_SECURITY_TLS_KEY"],
        kind: Kind::Path,
        help: "Its key, as PEM; it is reread",
        ..Setting::EMPTY
    },
    Setting {
        path: "security.tls.client_ca",
        env: &["OPRC_PM_SECURITY_TLS_CLIENT_CA"],
        kind: Kind::Path,
        help: "Who signs callers' certificates, as PEM; it is reread",
        ..Setting::EMPTY
    },
    Setting {
        path: "logging.level",
        env: &["RUST_LOG", "SERVICE_LOG", "OPRC_PM_LOG"],
        kind: Kind::Text,
        help: "What is logged, such as info or oprc_pm=debug,info",
        default: |profile| {
            let level = if profile == "dev" { "info,oprc_pm=debug" } else { "info" };
            Some(level.to_owned())
        },
        ..Setting::EMPTY
    },
    Setting {
        path: "logging.format",
        env: &["OPRC_PM_LOG_FORMAT"],
        kind: Kind::OneOf(&["json", "pretty"]),
        help: "How logs are written",
        default: |profile| Some(if profile == "dev" { "pretty" } else { "json" }.to_owned()),
        ..Setting::EMPTY
    },
];
