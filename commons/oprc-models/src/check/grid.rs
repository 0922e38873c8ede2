//! The data grid of a deployment.

use super::{
    DAY_MS, check_count, check_length, check_object_name, check_quantity, check_range,
    check_resources, check_unique, check_url, placement, provision,
};
use crate::{
    diagnostics::{Diagnostics, Path},
    model::{Batch, CollectionSpec, Events, Grid, OClassDeployment},
    names::quote,
};

pub(super) fn check(
    diagnostics: &mut Diagnostics,
    path: &Path,
    grid: &Grid,
    deployment: &OClassDeployment,
) {
    let collections = path.field("collections");
    check_count(diagnostics, &collections, grid.collections.len(), 64);
    let names = grid.collections.iter().map(|it| it.0.name.as_str());
    check_unique(diagnostics, &collections, "name", names);
    for (index, collection) in grid.collections.iter().enumerate() {
        check_collection(diagnostics, &collections.index(index), &collection.0, deployment);
    }
    if let Some(image) = &grid.image {
        provision::check_image(diagnostics, &path.field("image"), image);
    }
    check_range(diagnostics, &path.field("replicas"), grid.replicas, 1, 99);
    for (field, text, max) in
        [("clusterId", &grid.cluster_id, 253), ("nodeIdPrefix", &grid.node_id_prefix, 200)]
    {
        if let Some(text) = text {
            check_length(diagnostics, &path.field(field), text, max);
        }
    }
    if let Some(events) = &grid.events {
        check_events(diagnostics, &path.field("events"), events);
    }
    let routes = path.field("routes");
    check_count(diagnostics, &routes, grid.routes.len(), 256);
    for (key, route) in &grid.routes {
        let path = routes.key(key);
        check_length(diagnostics, &path, key, 253);
        let schemes = ["http://", "https://", "grpc://"];
        check_url(diagnostics, &path.field("url"), &route.url, &schemes, 2048);
    }
    if let Some(storage) = &grid.storage {
        let path = path.field("storage");
        if let Some(class) = &storage.class {
            check_object_name(diagnostics, &path.field("class"), class);
        }
        check_quantity(diagnostics, &path.field("size"), storage.size.as_ref());
    }
    let resources = [
        ("cpu", &grid.cpu, "requestsCpu", &grid.requests_cpu),
        ("memory", &grid.memory, "requestsMemory", &grid.requests_memory),
    ];
    check_resources(diagnostics, path, resources);
    let env = path.field("env");
    provision::check_env(diagnostics, &env, &grid.env);
    for name in grid.env.keys().filter(|it| it.starts_with("ODGM_") || *it == "OPRC_ZENOH_PORT") {
        diagnostics.add(&env.key(name), provision::RESERVED);
    }
}

fn check_collection(
    diagnostics: &mut Diagnostics,
    path: &Path,
    spec: &CollectionSpec,
    deployment: &OClassDeployment,
) {
    check_collection_name(diagnostics, &path.field("name"), &spec.name);
    check_range(diagnostics, &path.field("partitionCount"), spec.partition_count, 1, 4096);
    check_range(diagnostics, &path.field("replicaCount"), spec.replica_count, 1, 99);
    let patterns = path.field("accessPatterns");
    check_count(diagnostics, &patterns, spec.access_patterns.len(), 8);
    check_unique(diagnostics, &patterns, "", spec.access_patterns.iter().map(|it| it.as_str()));
    let effective = OClassDeployment {
        members: deployment.members.clone(),
        partition_count: spec.partition_count.or(deployment.partition_count),
        replica_count: spec.replica_count.or(deployment.replica_count),
        ..OClassDeployment::default()
    };
    let assignments = &spec.assignments;
    placement::check_assignments(diagnostics, &path.field("assignments"), &effective, assignments);
}

pub(super) fn check_collection_name(diagnostics: &mut Diagnostics, path: &Path, name: &str) {
    // Functions get collection names as a comma-separated list.
    let bad = |it: char| matches!(it, ',' | '"' | '\\') || it.is_whitespace() || it.is_control();
    if name.is_empty() || name.len() > 253 || name.contains(bad) {
        let rule = "1 to 253 characters without commas, quotes, backslashes and white space";
        let message = format!("{} is not a valid collection name; use {rule}", quote(name));
        diagnostics.add(path, message);
    }
}

fn check_events(diagnostics: &mut Diagnostics, path: &Path, events: &Events) {
    check_range(diagnostics, &path.field("maxTriggerDepth"), events.max_trigger_depth, 1, 100);
    check_range(diagnostics, &path.field("triggerTimeout"), events.trigger_timeout, 1, DAY_MS);
    let triggers = path.field("triggers");
    check_count(diagnostics, &triggers, events.triggers.len(), 256);
    for (index, trigger) in events.triggers.iter().enumerate() {
        let path = triggers.index(index);
        check_length(diagnostics, &path.field("function"), &trigger.function, 253);
        let filters = path.field("collections");
        check_count(diagnostics, &filters, trigger.collections.len(), 64);
        for (index, filter) in trigger.collections.iter().enumerate() {
            check_collection_name(diagnostics, &filters.index(index), filter);
        }
    }
    let disabled = Events { enabled: Some(false), ..Events::default() };
    if events.enabled == disabled.enabled && *events != disabled {
        add_disabled(diagnostics, path);
    }
    if let Some(batch) = &events.batch {
        let path = path.field("batch");
        check_range(diagnostics, &path.field("size"), batch.size, 1, 100_000);
        check_range(diagnostics, &path.field("timeout"), batch.timeout, 1, 600_000);
        let disabled = Batch { enabled: Some(false), ..Batch::default() };
        if batch.enabled == disabled.enabled && *batch != disabled {
            add_disabled(diagnostics, &path);
        }
    }
}

fn add_disabled(diagnostics: &mut Diagnostics, path: &Path) {
    let message = "the other fields have no effect with enabled: false";
    diagnostics.add_with_hint(path, message, "remove enabled: false or the other fields");
}
