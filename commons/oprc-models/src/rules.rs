//! Rules for single values that hold in package files and in units.

use crate::{limits, names::NameKind};

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

/// Whether the platform sets a variable in function containers.
pub fn is_reserved_env(name: &str) -> bool {
    RESERVED_ENV.contains(&name)
}

/// Whether the platform sets a variable in the nodes of a data grid.
pub fn is_reserved_grid_env(name: &str) -> bool {
    is_reserved_env(name) || name.starts_with("ODGM_")
}

/// Whether a name of an environment variable has only letters, digits, `_`, `.` and `-`, and starts
/// with a letter or `_`.
pub fn is_env_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.len() <= limits::NAME
        && name.bytes().all(|it| it.is_ascii_alphanumeric() || b"_.-".contains(&it))
}

/// Whether a text has white space or control characters, which images and URLs must not have.
pub fn has_white_space(text: &str) -> bool {
    text.contains(|it: char| it.is_whitespace() || it.is_control())
}

/// Whether a path is absolute and has no colon, as Kubernetes requires.
pub fn is_mount_path(path: &str) -> bool {
    path.starts_with('/') && !path.contains(':')
}

/// Whether a name of a collection can be an item of the comma-separated list that functions get.
pub fn is_collection_name(name: &str) -> bool {
    (1..=limits::NAME).contains(&name.len())
        && !name.contains([',', '"', '\\'])
        && !has_white_space(name)
}

/// Whether this is a valid name of a namespace.
pub fn is_namespace(name: &str) -> bool {
    NameKind::Environment.violation(name).is_none()
}

/// Whether an availability is a fraction; one above 1 is probably meant in percent.
pub fn is_availability(fraction: f64) -> bool {
    (0.0..=1.0).contains(&fraction)
}
