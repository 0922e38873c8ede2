//! Limits that hold in package files and in units: checks of packages use them, and so does the
//! schema of units. Limits of package files only are next to their checks.

/// An inclusive range of integers.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub min: i32,
    pub max: i32,
}

const fn bounds(min: i32, max: i32) -> Bounds {
    Bounds { min, max }
}

pub const PORT: Bounds = bounds(1, 65_535);
pub const MIN_SCALE: Bounds = bounds(0, 10_000);
pub const MAX_SCALE: Bounds = bounds(1, 10_000);
pub const USER_ID: Bounds = bounds(0, i32::MAX);
/// Nodes of a data grid, and replicas of a partition.
pub const REPLICAS: Bounds = bounds(1, 99);
pub const PARTITIONS: Bounds = bounds(1, 4096);
/// Requests per second.
pub const THROUGHPUT: Bounds = bounds(0, 1_000_000_000);
pub const CONCURRENCY: Bounds = bounds(1, 1000);
/// Latencies and timeouts of calls, up to one day.
pub const CALL_MS: Bounds = bounds(1, 86_400_000);
/// Repetitions of a failed call.
pub const RETRIES: Bounds = bounds(0, 10);
pub const PROGRESS_DEADLINE_SECONDS: Bounds = bounds(1, 86_400);
pub const DRAIN_SECONDS: Bounds = bounds(0, 3600);
pub const PROBE_SECONDS: Bounds = bounds(1, 3600);
pub const FAILURE_THRESHOLD: Bounds = bounds(1, 100);
pub const TRIGGER_DEPTH: Bounds = bounds(1, 100);
pub const BATCH_SIZE: Bounds = bounds(1, 100_000);
pub const BATCH_TIMEOUT_MS: Bounds = bounds(1, 600_000);

// Lengths of texts.

/// Names of Kubernetes objects and of what is named like them, and keys of Secrets and ConfigMaps.
pub const NAME: usize = 253;
/// Values of labels, DNS labels, and names of templates and addons.
pub const LABEL: usize = 63;
pub const VERSION: usize = 128;
pub const IMAGE: usize = 1024;
/// Paths of volumes and of HTTP probes.
pub const PATH: usize = 1024;
pub const METRICS_PATH: usize = 256;
pub const OTLP_ENDPOINT: usize = 1024;
pub const ROUTE_URL: usize = 2048;
pub const QUANTITY: usize = 32;
pub const NODE_ID_PREFIX: usize = 200;
pub const ENV_PREFIX: usize = 63;
pub const ENV_VALUE: usize = 32_768;
pub const ARGUMENT: usize = 4096;
/// The condition of a binding.
pub const CONDITION: usize = 1024;
/// References and names in the steps of macros, and the names of references and state keys.
pub const STEP_REFERENCE: usize = 512;

// Numbers of entries.

/// Functions of a class.
pub const FUNCTIONS: usize = 64;
/// Bindings of a function.
pub const BINDINGS: usize = 64;
/// Bindings of a class, its state keys and its references, each including inherited ones.
pub const MEMBERS: usize = 512;
/// Steps of a macro, and additional inputs of a step.
pub const STEPS: usize = 64;
/// Arguments of a step.
pub const STEP_ARGS: usize = 64;
pub const ENV: usize = 256;
/// Environment variables of a node of the data grid.
pub const GRID_ENV: usize = 64;
pub const ENV_FROM: usize = 32;
pub const PULL_SECRETS: usize = 16;
pub const VOLUMES: usize = 32;
/// Items of a command, and of its arguments.
pub const ARGUMENTS: usize = 64;
pub const COLLECTIONS: usize = 64;
pub const ACCESS_PATTERNS: usize = 8;
pub const ASSIGNMENTS: usize = 4096;
/// Members that store a shard.
pub const OWNERS: usize = 99;
/// Members of a deployment.
pub const DEPLOYMENT_MEMBERS: usize = 256;
/// Partitions of all collections of a class whose partitions are divided among members.
pub const DIVIDED_PARTITIONS: usize = 16_384;
pub const TRIGGERS: usize = 256;
pub const ROUTES: usize = 256;
