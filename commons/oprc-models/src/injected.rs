//! What containers are told by the platform.

/// Variables that the platform sets: a user's own of that name would be lost, so it is refused.
pub const INJECTED: [&str; 15] = [
    "DEPLOYMENT_ID",
    "ENVIRONMENT",
    "EXPECTED_THROUGHPUT",
    "FUNCTION_KEY",
    "MAX_LATENCY_MS",
    "ODGM_ACCESS_MODE",
    "ODGM_CACHING_STRATEGY",
    "ODGM_CLUSTER_ID",
    "ODGM_COLLECTIONS",
    "ODGM_ENABLED",
    "ODGM_ENDPOINT",
    "ODGM_NODE_ROLE",
    "ODGM_SERVICE",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "PORT",
];
