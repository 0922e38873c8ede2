//! Decisions, carried out on a cluster in memory.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod api_server;
mod cluster;
mod controllers;
mod convergence;
mod deletion;
mod drift;
mod foreign;
mod grid;
mod managed;
mod pods;
mod proof;
mod rendering;
mod reporting;
mod rollback;
mod specs;
mod switching;
mod view;

use proptest::prelude::ProptestConfig;
use serde_json::Value;

use super::{managed_fields::OwnedFields, observe::MANAGER};

/// So many cases, or as many as `PROPTEST_CASES` says; and no files beside the sources for those
/// that fail.
fn cases(cases: u32) -> ProptestConfig {
    let default = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let said = std::env::var_os("PROPTEST_CASES").is_some();
    ProptestConfig { cases: if said { default.cases } else { cases }, ..default }
}

/// What we own of an object.
fn owned(object: &Value) -> Value {
    let managed = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    OwnedFields::of(object, &managed, MANAGER).map(|it| it.live).unwrap_or_default()
}
