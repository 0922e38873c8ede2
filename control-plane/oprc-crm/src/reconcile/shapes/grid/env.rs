//! The environment variables that configure the data grid.

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector};
use oprc_models::parse_volume_size;
use oprc_unit::{
    OdgmPlan, Profile, names, persistence, replication::store_quota, shard_type,
    spec::AccessPattern,
};
use serde::Serialize;

use super::{
    super::super::manifest::{
        Context, GRID_PORT,
        pod::{self, variable},
    },
    DATA_DIR, TLS_DIR,
    document::{CLASS_FILE, CONFIG_DIR, MEMBERS_FILE},
    volume_size,
};

/// A collection in `ODGM_COLLECTION`. The number of copies is that of the members.
#[derive(Serialize)]
struct Collection<'a> {
    name: &'a str,
    partition_count: i32,
    shard_type: &'a str,
    persistence_mode: &'a str,
    access_patterns: &'a [AccessPattern],
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// The names and values don't depend on methods, triggers, assignments or the number of members: a
/// changed template of the pods restarts them.
pub(super) fn variables(context: &Context<'_>, plan: &OdgmPlan) -> Vec<EnvVar> {
    let identity = &context.class.identity;
    let collections = plan.collections.iter().map(|it| Collection {
        name: &it.name,
        partition_count: it.partitions,
        shard_type: shard_type(it.shard_type),
        persistence_mode: persistence(it.persistence),
        access_patterns: &it.access_patterns,
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
    let own = if plan.stateful() {
        let peers = names::odgm_peers(&identity.base);
        format!("$(ODGM_NODE_NAME).{peers}.{}.svc", identity.namespace)
    } else {
        format!("{}.{}.svc", names::odgm_service(&identity.base), identity.namespace)
    };
    let level = if context.selection.profile == Profile::Dev { "DEBUG" } else { "INFO" };
    let mut all = vec![
        field("ODGM_NODE_NAME", "metadata.name"),
        variable("ODGM_HTTP_PORT", GRID_PORT.to_string()),
        variable("ODGM_NODE_ADDR", format!("http://{own}:{GRID_PORT}")),
        variable("ODGM_CLUSTER_ID", &plan.cluster_id),
        variable("ODGM_COLLECTIONS", names.join(",")),
        variable("ODGM_COLLECTION", json(&collections.collect::<Vec<_>>())),
        variable("ODGM_CLASS_FILE", format!("{CONFIG_DIR}/{CLASS_FILE}")),
        variable("ODGM_LOG", format!("{level},h2=warn")),
        variable("ODGM_DATA_DIR", DATA_DIR),
    ];
    let mut index = "0";
    if plan.stateful() {
        all.push(field("ODGM_NODE_INDEX", "metadata.labels['apps.kubernetes.io/pod-index']"));
        index = "$(ODGM_NODE_INDEX)";
    }
    // The index is substituted without padding; a node pads it to three digits itself.
    all.push(variable("ODGM_NODE_ID_PREFIX", &plan.node_id_prefix));
    all.push(variable("ODGM_NODE_ID", format!("{}00{index}", plan.node_id_prefix)));
    if plan.is_replicated() {
        all.push(variable("ODGM_TLS_DIR", TLS_DIR));
        all.push(variable("ODGM_MEMBERS_FILE", format!("{CONFIG_DIR}/{MEMBERS_FILE}")));
        let quota = parse_volume_size(&volume_size(context, plan)).map_or(0, store_quota);
        all.push(variable("ODGM_ETCD_QUOTA_BYTES", quota.to_string()));
    }
    all.extend(plan.env.iter().map(pod::user_variable));
    all
}
