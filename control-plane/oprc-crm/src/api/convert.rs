//! Conversions to and from the wire types.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use oprc_grpc::deployment as wire;

use crate::{
    crd::{ClassRuntimeStatus, FunctionStatus, Recommendation},
    decode::deployment_id,
    phase_mapping,
    reconcile::ObservedClass,
    service::ClusterInfo,
};

fn time(time: Option<&Time>) -> String {
    time.map(|time| time.0.to_string()).unwrap_or_default()
}

pub(super) fn class(class: &ObservedClass) -> wire::ClassRuntime {
    let spec = class.spec.as_ref().ok();
    let unit = spec.and_then(|spec| spec.deployment_unit.as_ref());
    let deleting = class.deleting.is_some();
    wire::ClassRuntime {
        deployment_id: deployment_id(class).to_owned(),
        namespace: class.namespace.clone(),
        name: class.name.clone(),
        uid: class.uid.clone(),
        generation: class.generation,
        environment: spec.and_then(|it| it.target_environment.clone()).unwrap_or_default(),
        package: unit.and_then(|it| it.package.clone()).unwrap_or_default(),
        package_version: unit.and_then(|it| it.package_version.clone()).unwrap_or_default(),
        class: unit.and_then(|it| it.class.clone()).unwrap_or_default(),
        labels: class.labels.clone(),
        created_at: class.created.map(|time| time.to_string()).unwrap_or_default(),
        deleting,
        correlation_id: class.correlation_id.clone().unwrap_or_default(),
        status: Some(status(&class.status.clone().unwrap_or_default(), deleting)),
        spec: None,
    }
}

/// `None` if the messages have no field for a setting of the class.
pub(super) fn spec(class: &ObservedClass) -> Option<wire::unit::ClassSpec> {
    oprc_grpc::unit::to_wire(class.spec.as_ref().ok()?)
}

fn status(status: &ClassRuntimeStatus, deleting: bool) -> wire::Status {
    wire::Status {
        phase: status.phase.as_str().to_owned(),
        state: phase_mapping::deployment_state(status.phase, deleting).into(),
        reason: status.reason.clone().unwrap_or_default(),
        message: status.message.clone().unwrap_or_default(),
        ready: status.ready.clone().unwrap_or_default(),
        observed_generation: status.observed_generation.unwrap_or_default(),
        conditions: status
            .conditions
            .iter()
            .map(|it| wire::Condition {
                r#type: it.type_.clone(),
                status: it.status.clone(),
                reason: it.reason.clone(),
                message: it.message.clone(),
                observed_generation: it.observed_generation.unwrap_or_default(),
                last_transition_time: it.last_transition_time.0.to_string(),
            })
            .collect(),
        selection: status.selection.as_ref().map(|it| wire::Selection {
            template: it.template.clone(),
            profile: it.profile.clone(),
            basis: it.basis.clone(),
            scores: it
                .scores
                .iter()
                .map(|score| wire::TemplateScore {
                    template: score.template.clone(),
                    score: score.score,
                    rows: score.rows.clone(),
                    rejected: score.rejected.clone().unwrap_or_default(),
                })
                .collect(),
        }),
        resource_refs: status
            .resource_refs
            .iter()
            .map(|it| wire::ResourceRef {
                api_version: it.api_version.clone(),
                kind: it.kind.clone(),
                name: it.name.clone(),
                uid: it.uid.clone(),
            })
            .collect(),
        functions: status.functions.iter().map(|it| function(it, status, deleting)).collect(),
        odgm: status.odgm.as_ref().map(|it| wire::OdgmStatus {
            ready: it.ready,
            service: it.service.clone(),
            replicas: it.replicas,
            collections: it
                .collections
                .iter()
                .map(|collection| wire::OdgmCollection {
                    name: collection.name.clone(),
                    partition_count: collection.partition_count,
                    replica_count: collection.replica_count,
                    shard_type: collection.shard_type.clone(),
                    persistence_mode: collection.persistence_mode.clone(),
                })
                .collect(),
            reason: it.reason.clone().unwrap_or_default(),
            message: it.message.clone().unwrap_or_default(),
        }),
        stable_since: status
            .stable_since
            .iter()
            .map(|(name, since)| (name.clone(), since.0.to_string()))
            .collect(),
        nfr_recommendations: status.nfr_recommendations.iter().map(recommendation).collect(),
        last_applied_recommendations: status
            .last_applied_recommendations
            .iter()
            .map(recommendation)
            .collect(),
        last_applied_at: time(status.last_applied_at.as_ref()),
        last_updated: time(status.last_updated.as_ref()),
    }
}

fn function(
    function: &FunctionStatus,
    status: &ClassRuntimeStatus,
    deleting: bool,
) -> wire::FunctionStatus {
    wire::FunctionStatus {
        key: function.key.clone(),
        condition: phase_mapping::function_state(function, status.phase, deleting).into(),
        runs_as: function.runs_as.clone().unwrap_or_default(),
        ready: function.ready,
        invocation_url: function.url.clone().unwrap_or_default(),
        public_url: function.public_url.clone().unwrap_or_default(),
        reason: function.reason.clone().unwrap_or_default(),
        error_msg: function.message.clone().unwrap_or_default(),
    }
}

fn recommendation(it: &Recommendation) -> wire::Recommendation {
    wire::Recommendation {
        component: it.component.clone(),
        dimension: it.dimension.clone(),
        target: it.target,
        basis: it.basis.clone().unwrap_or_default(),
        confidence: it.confidence.unwrap_or_default(),
    }
}

pub(super) fn cluster_info(
    info: ClusterInfo,
    correlation_id: String,
) -> wire::GetClusterInfoResponse {
    let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let (nodes, ready) = (count(info.nodes), count(info.ready_nodes));
    wire::GetClusterInfoResponse {
        nodes_known: info.nodes_known,
        nodes,
        ready_nodes: ready,
        availability: if nodes == 0 { 0.0 } else { f64::from(ready) / f64::from(nodes) },
        capabilities: info.capabilities,
        capacity: info.capacity,
        templates: info.templates,
        profile: info
            .platform
            .as_ref()
            .map(|it| it.profile.as_str().to_owned())
            .unwrap_or_default(),
        platform: info.platform.as_ref().and_then(oprc_grpc::unit::platform_to_wire),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        leading: info.leading,
        stale: info.stale,
        correlation_id,
    }
}
