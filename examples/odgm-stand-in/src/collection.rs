//! JSON values of environment variables.

#![expect(dead_code, reason = "most fields are only parsed to validate them")]

use std::{collections::BTreeMap, num::NonZeroU32};

use serde::Deserialize;
use serde_json::{Map, Value};

/// An element of `ODGM_COLLECTION`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Collection {
    pub(crate) name: String,
    pub(crate) partition_count: NonZeroU32,
    pub(crate) replica_count: NonZeroU32,
    shard_type: ShardType,
    persistence_mode: PersistenceMode,
    #[serde(default)]
    access_patterns: Vec<String>,
    shard_assignments: Option<Vec<Map<String, Value>>>,
    invocations: Option<Invocations>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ShardType {
    Raft,
    Basic,
    Mst,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PersistenceMode {
    Persistent,
    Ephemeral,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Invocations {
    fn_routes: BTreeMap<String, Route>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Route {
    url: String,
    #[serde(default)]
    stateless: bool,
    #[serde(default)]
    standby: bool,
}

/// An element of `ODGM_EVENT_TRIGGERS`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventTrigger {
    function_key: String,
    #[serde(default)]
    collection_filters: Vec<String>,
    #[serde(default)]
    async_execution: bool,
}
