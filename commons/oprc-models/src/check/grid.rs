//! The data grid of a deployment.

use super::{placement, provision};
use crate::{
    diagnostics::FieldCursor,
    limits,
    model::{Batch, CollectionSpec, Events, Grid, OClassDeployment},
    names::quote,
    rules::{is_collection_name, is_reserved_grid_env},
};

pub(super) fn check(at: &FieldCursor<'_>, grid: &Grid, deployment: &OClassDeployment) {
    let collections = at.field("collections");
    for (at, it) in
        collections.unique(limits::COLLECTIONS, &grid.collections, "name", |it| &it.0.name)
    {
        check_collection(&at, &it.0, deployment);
    }
    provision::check_image(&at.field("image"), grid.image.as_ref());
    at.field("replicas").range(grid.replicas, limits::REPLICAS);
    at.field("clusterId").length(grid.cluster_id.as_ref(), limits::NAME);
    at.field("nodeIdPrefix").length(grid.node_id_prefix.as_ref(), limits::NODE_ID_PREFIX);
    if let Some(events) = &grid.events {
        check_events(&at.field("events"), events);
    }
    let routes = at.field("routes");
    routes.count(grid.routes.len(), limits::ROUTES);
    for (key, route) in &grid.routes {
        let at = routes.key(key);
        at.length(key, limits::NAME);
        at.field("url").url(&route.url, &["http://", "https://", "grpc://"], limits::ROUTE_URL);
    }
    if let Some(storage) = &grid.storage {
        let at = at.field("storage");
        at.field("class").object_name(storage.class.as_ref());
        at.field("size").quantity(storage.size.as_ref());
    }
    at.resources(&[
        ("cpu", &grid.cpu, "requestsCpu", &grid.requests_cpu),
        ("memory", &grid.memory, "requestsMemory", &grid.requests_memory),
    ]);
    provision::check_env(&at.field("env"), &grid.env, limits::GRID_ENV, is_reserved_grid_env);
}

fn check_collection(at: &FieldCursor<'_>, spec: &CollectionSpec, deployment: &OClassDeployment) {
    check_collection_name(&at.field("name"), &spec.name);
    at.field("partitionCount").range(spec.partition_count, limits::PARTITIONS);
    at.field("replicaCount").range(spec.replica_count, limits::REPLICAS);
    let (max, patterns) = (limits::ACCESS_PATTERNS, &spec.access_patterns);
    at.field("accessPatterns").distinct(max, patterns, "", |it| it.as_str());
    let effective = OClassDeployment {
        members: deployment.members.clone(),
        partition_count: spec.partition_count.or(deployment.partition_count),
        ..OClassDeployment::default()
    };
    placement::check_assignments(&at.field("assignments"), &effective, &spec.assignments);
}

pub(super) fn check_collection_name(at: &FieldCursor<'_>, name: &str) {
    if !is_collection_name(name) {
        let rule = "1 to 253 characters without commas, quotes, backslashes and white space";
        at.add(format!("{} is not a valid collection name; use {rule}", quote(name)));
    }
}

pub(super) fn check_filters(at: &FieldCursor<'_>, filters: &[String]) {
    for (at, filter) in at.field("collections").limited(limits::COLLECTIONS, filters) {
        check_collection_name(&at, filter);
    }
}

fn check_events(at: &FieldCursor<'_>, events: &Events) {
    at.field("maxTriggerDepth").range(events.max_trigger_depth, limits::TRIGGER_DEPTH);
    at.field("triggerTimeout").range(events.trigger_timeout, limits::CALL_MS);
    for (at, trigger) in at.field("triggers").limited(limits::TRIGGERS, &events.triggers) {
        at.field("function").length(&trigger.function, limits::NAME);
        check_filters(&at, &trigger.collections);
    }
    let disabled = Events { enabled: Some(false), ..Events::default() };
    if events.enabled == disabled.enabled && *events != disabled {
        add_disabled(at);
    }
    if let Some(batch) = &events.batch {
        let at = at.field("batch");
        at.field("size").range(batch.size, limits::BATCH_SIZE);
        at.field("timeout").range(batch.timeout, limits::BATCH_TIMEOUT_MS);
        let disabled = Batch { enabled: Some(false), ..Batch::default() };
        if batch.enabled == disabled.enabled && *batch != disabled {
            add_disabled(&at);
        }
    }
}

fn add_disabled(at: &FieldCursor<'_>) {
    let message = "the other fields have no effect with enabled: false";
    at.add_with_hint(message, "remove enabled: false or the other fields");
}
