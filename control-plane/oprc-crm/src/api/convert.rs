//! Conversions to and from the wire types.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use oprc_grpc::deployment as wire;

use crate::{
    crd::{ClassRuntimeStatus, FunctionStatus, Recommendation},
    decode::deployment_id,
    phase_mapping,
    reconcile::ObservedClass,
    service::{ClusterInfo, Error},
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

/// The specification; none if it has fields that the wire type lacks, as one written by hand may.
pub(super) fn spec(class: &ObservedClass) -> Option<wire::unit::ClassSpec> {
    let spec = serde_json::to_value(class.spec.as_ref().ok()?).ok()?;
    serde_json::from_value(without_nulls(spec)).ok()
}

/// The requested specification. Numbers that aren't finite are rejected, because JSON would silently
/// drop them.
pub(super) fn requested_spec(spec: &wire::unit::ClassSpec) -> Result<serde_json::Value, Error> {
    let of_functions = spec.functions.iter().enumerate().filter_map(|(at, function)| {
        Some((format!("spec.functions[{at}].requirements"), function.requirements.as_ref()?))
    });
    let of_class = spec.nfr_requirements.iter().map(|it| ("spec.nfr_requirements".to_owned(), it));
    for (field, requirements) in of_class.chain(of_functions) {
        for (name, number) in [
            ("availability", requirements.availability),
            ("availability_pct", requirements.availability_pct),
        ] {
            if let Some(number) = number.filter(|number| !number.is_finite()) {
                let message = format!("{number} is not a finite number");
                return Err(Error::invalid(format!("{field}.{name}"), message));
            }
        }
    }
    let spec = serde_json::to_value(spec).map_err(|error| {
        Error::Internal(format!("failed to convert the specification: {error}"))
    })?;
    Ok(without_nulls(spec))
}

/// Fields that are unset on the wire are left out of the specification.
fn without_nulls(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key, without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
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
        profile: info.profile,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        leading: info.leading,
        stale: info.stale,
        correlation_id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_that_is_not_finite_is_rejected_by_its_field() {
        let requirements = |number: f64| wire::unit::Requirements {
            availability: Some(number),
            ..wire::unit::Requirements::default()
        };
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let of_class = wire::unit::ClassSpec {
                nfr_requirements: Some(requirements(number)),
                ..wire::unit::ClassSpec::default()
            };
            let function = wire::unit::Function {
                requirements: Some(wire::unit::Requirements {
                    availability_pct: Some(number),
                    ..wire::unit::Requirements::default()
                }),
                ..wire::unit::Function::default()
            };
            let of_function = wire::unit::ClassSpec {
                functions: vec![function],
                ..wire::unit::ClassSpec::default()
            };
            for (spec, field) in [
                (of_class, "spec.nfr_requirements.availability"),
                (of_function, "spec.functions[0].requirements.availability_pct"),
            ] {
                let Err(Error::Invalid(violations)) = requested_spec(&spec) else {
                    panic!("{number}")
                };
                assert_eq!(violations[0].field, field);
            }
        }
        let fine = wire::unit::ClassSpec {
            nfr_requirements: Some(requirements(0.9)),
            ..wire::unit::ClassSpec::default()
        };
        assert_eq!(requested_spec(&fine).unwrap()["nfr_requirements"]["availability"], 0.9);
    }
}
