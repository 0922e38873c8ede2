//! The environment variables that configure the data grid.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector};
use oprc_unit::{
    OdgmPlan, Profile, names, persistence, shard_type,
    spec::{AccessPattern, Route, ShardAssignment},
};
use serde::Serialize;

use super::{
    super::super::manifest::{
        Context, FunctionPlan, GRID_PORT,
        pod::{self, variable},
    },
    DATA_DIR, ZENOH_PORT,
};

/// A collection in `ODGM_COLLECTION`.
#[derive(Serialize)]
struct Collection<'a> {
    name: &'a str,
    partition_count: i32,
    replica_count: i32,
    shard_type: &'a str,
    persistence_mode: &'a str,
    access_patterns: &'a [AccessPattern],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    shard_assignments: &'a [ShardAssignment],
    invocations: Invocations<'a>,
}

#[derive(Serialize)]
struct Invocations<'a> {
    fn_routes: &'a BTreeMap<String, Route>,
}

#[derive(Serialize)]
struct Trigger<'a> {
    function_key: &'a str,
    collection_filters: &'a [String],
    async_execution: bool,
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

pub(super) fn variables(
    context: &Context<'_>,
    plan: &OdgmPlan,
    functions: &[FunctionPlan],
) -> Vec<EnvVar> {
    let identity = &context.class.identity;
    let mut routes = plan.routes.clone();
    // Only functions that triggers call: a change of the others must not restart the grid.
    let called = |key: &str| plan.triggers.iter().any(|trigger| trigger.function_key == key);
    for function in functions.iter().filter(|function| called(&function.key)) {
        let Some(url) = function.url.clone() else { continue };
        let standby = context.class.functions.iter().any(|it| it.key == function.key && it.standby);
        let route = Route { url, standby, ..Route::default() };
        routes.entry(function.key.clone()).or_insert(route);
    }
    let collections = plan.collections.iter().map(|it| Collection {
        name: &it.name,
        partition_count: it.partitions,
        replica_count: it.replicas,
        shard_type: shard_type(it.shard_type),
        persistence_mode: persistence(it.persistence),
        access_patterns: &it.access_patterns,
        shard_assignments: &it.assignments,
        invocations: Invocations { fn_routes: &routes },
    });
    let names: Vec<&str> = plan.collections.iter().map(|it| it.name.as_str()).collect();
    let field = |name: &str, path: &str| EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: Some("v1".to_owned()),
                field_path: path.to_owned(),
            }),
            ..EnvVarSource::default()
        }),
    };
    let workload = names::odgm(&identity.base);
    let (own, members) = if plan.stateful() {
        let peers = format!("{}.{}.svc", names::odgm_peers(&identity.base), identity.namespace);
        let member = |at| format!("{workload}-{at}.{peers}:{GRID_PORT}");
        let members: Vec<_> = (0..plan.replicas).map(member).collect();
        (format!("$(ODGM_NODE_NAME).{peers}"), members.join(","))
    } else {
        let own = format!("{}.{}.svc", names::odgm_service(&identity.base), identity.namespace);
        (own.clone(), format!("{own}:{GRID_PORT}"))
    };
    let level = if context.selection.profile == Profile::Dev { "DEBUG" } else { "INFO" };
    let mut all = vec![
        field("ODGM_NODE_NAME", "metadata.name"),
        variable("ODGM_HTTP_PORT", GRID_PORT.to_string()),
        variable("ODGM_NODE_ADDR", format!("http://{own}:{GRID_PORT}")),
        variable("ODGM_MEMBERS", members),
        variable("ODGM_CLUSTER_ID", &plan.cluster_id),
        variable("ODGM_COLLECTIONS", names.join(",")),
        variable("ODGM_COLLECTION", json(&collections.collect::<Vec<_>>())),
        variable("ODGM_EVENTS_ENABLED", plan.events.to_string()),
        variable("ODGM_MAX_TRIGGER_DEPTH", plan.trigger_depth.to_string()),
        variable("ODGM_TRIGGER_TIMEOUT_MS", plan.trigger_timeout_ms.to_string()),
        variable("ODGM_MAX_SESSIONS", "4"),
        variable("ODGM_REFLECTION_ENABLED", "false"),
        variable("ODGM_LOG", format!("{level},openraft=info,zenoh=info,h2=warn")),
        variable("ODGM_DATA_DIR", DATA_DIR),
        variable("OPRC_ZENOH_PORT", ZENOH_PORT.to_string()),
    ];
    let mut index = "0";
    if plan.stateful() {
        all.push(field("ODGM_NODE_INDEX", "metadata.labels['apps.kubernetes.io/pod-index']"));
        index = "$(ODGM_NODE_INDEX)";
    }
    // Three digits up to the tenth node; the index is substituted without padding.
    all.push(variable("ODGM_NODE_ID", format!("{}00{index}", plan.node_id_prefix)));
    if plan.events {
        let triggers = plan.triggers.iter().map(|it| Trigger {
            function_key: &it.function_key,
            collection_filters: &it.collection_filters,
            async_execution: it.async_execution,
        });
        all.push(variable("ODGM_EVENT_TRIGGERS", json(&triggers.collect::<Vec<_>>())));
        if let Some((size, timeout)) = plan.batch {
            all.push(variable("ODGM_BATCH_SIZE", size.to_string()));
            all.push(variable("ODGM_BATCH_TIMEOUT_MS", timeout.to_string()));
        }
    }
    all.extend(plan.env.iter().map(pod::user_variable));
    all
}
