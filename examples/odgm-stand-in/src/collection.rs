//! JSON values of environment variables.

#![expect(dead_code, reason = "most fields are only parsed to validate them")]

use std::num::NonZeroU32;

use serde::Deserialize;
use serde_json::{Map, Value};

/// An element of `ODGM_COLLECTION`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Collection {
    pub(crate) name: String,
    pub(crate) partition_count: NonZeroU32,
    shard_type: ShardType,
    persistence_mode: PersistenceMode,
    #[serde(default)]
    access_patterns: Vec<String>,
    shard_assignments: Option<Vec<Map<String, Value>>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ShardType {
    Raft,
    Basic,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PersistenceMode {
    Persistent,
    Ephemeral,
}
