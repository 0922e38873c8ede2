//! Reconciles on a cluster in memory.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod api_server;
mod availability;
mod cluster;
mod controllers;
mod convergence;
mod deletion;
mod drift;
mod enforcement;
mod foreign;
mod grid;
mod grid_rollout;
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

use super::{managed_fields::OwnedFields, observe::MANAGER, render::RENEW_AFTER};

/// So many cases, unless `PROPTEST_CASES` is set. Failures aren't persisted.
fn cases(cases: u32) -> ProptestConfig {
    let default = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let is_set = std::env::var_os("PROPTEST_CASES").is_some();
    ProptestConfig { cases: if is_set { default.cases } else { cases }, ..default }
}

/// The fields of an object that CRM owns, without the time of its certificate.
fn owned(object: &Value) -> Value {
    let managed = object["metadata"]["managedFields"].clone();
    let managed: Option<Vec<_>> = serde_json::from_value(managed).unwrap();
    let mut owned = OwnedFields::of(object, &managed.unwrap_or_default(), MANAGER)
        .map(|it| it.live)
        .unwrap_or_default();
    let annotations = owned.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    annotations.map(|it| it.remove(RENEW_AFTER));
    owned
}
