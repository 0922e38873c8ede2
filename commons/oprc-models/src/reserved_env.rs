//! Reserved environment variables.

/// Environment variables that the platform sets in function containers. A user's own value would
/// be overwritten, so these names are rejected.
pub const RESERVED_ENV: [&str; 15] = [
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
