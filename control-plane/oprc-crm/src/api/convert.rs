//! Conversions to and from the wire types.

use std::collections::BTreeMap;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use oprc_grpc::{deployment as wire, odgm};
use oprc_nfr::{compliance::State, migration::WorkloadKind};
use oprc_unit::{ADDONS, Template, spec::Dimension};

use crate::{
    crd::{ClassRuntimeStatus, ComplianceState, EffectStatus, Recommendation},
    decode::deployment_id,
    observations::{FunctionObservation, Observations, Samples},
    phase_mapping,
    reconcile::ObservedClass,
    service::{Error, Service},
};

fn time(time: Option<&Time>) -> String {
    time.map(|time| time.0.to_string()).unwrap_or_default()
}

/// `observations` are the latest measurements of this process.
pub(super) fn class(class: &ObservedClass, observations: &Observations) -> wire::ClassRuntime {
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
        status: Some(with_compliance(
            status(&class.status.clone().unwrap_or_default(), deleting),
            class,
            observations,
        )),
        spec: None,
    }
}

/// Adds the latest measurements. A process that measures nothing has the verdicts of status instead.
fn with_compliance(
    mut status: wire::Status,
    class: &ObservedClass,
    observations: &Observations,
) -> wire::Status {
    let measured = observations.class(&(class.namespace.clone(), class.name.clone()));
    let measured = observations.observed_at.zip(measured);
    for function in &mut status.functions {
        let live = measured.and_then(|(observed_at, functions)| {
            Some(compliance(functions.get(&function.key)?, observed_at))
        });
        function.nfr_compliance = live.or_else(|| stored_compliance(class, &function.key));
    }
    status
}

/// The values of status are those of the last transitions, so they aren't reported as current ones.
fn stored_compliance(class: &ObservedClass, function: &str) -> Option<wire::NfrCompliance> {
    let stored = class.status.iter().flat_map(|it| &it.nfr_compliance);
    let own = stored.filter(|it| it.function == function);
    let requirements = own.map(|it| wire::RequirementCompliance {
        requirement: it.requirement.clone(),
        state: it.state.as_str().to_owned(),
        since: it.since.0.to_string(),
        required: Some(it.required),
        reason: it.reason.clone().unwrap_or_default(),
        ..wire::RequirementCompliance::default()
    });
    let requirements: Vec<_> = requirements.collect();
    let is_judged = !requirements.is_empty();
    is_judged.then(|| wire::NfrCompliance { requirements, ..wire::NfrCompliance::default() })
}

fn compliance(function: &FunctionObservation, observed_at: Timestamp) -> wire::NfrCompliance {
    wire::NfrCompliance {
        throughput_actual: function.throughput,
        latency_p95_ms: function.latency_p95.map(|seconds| seconds * 1000.0),
        availability_actual: function.availability,
        observed_at: observed_at.to_string(),
        requirements: each(&function.requirements, |it| {
            let since = Timestamp::from_millisecond(it.verdict.since).unwrap_or_default();
            let reason = match it.verdict.state {
                State::Unknown(reason) => reason.as_str(),
                State::Met | State::Violated => "",
            };
            wire::RequirementCompliance {
                requirement: it.requirement.kind().as_str().to_owned(),
                state: ComplianceState::from(it.verdict.state).as_str().to_owned(),
                since: since.to_string(),
                required: Some(it.required),
                observed: it.verdict.observed,
                reason: reason.to_owned(),
                error_budget: it.error_budget,
            }
        }),
        decisions: each(&function.decisions, |it| wire::NfrDecision {
            dimension: it.dimension.as_str().to_owned(),
            mode: it.mode.as_str().to_owned(),
            current: it.current,
            target: it.target,
            basis: it.basis.clone(),
            waits_for: it.waits_for.clone().unwrap_or_default(),
            next_change_at: it.next_change_at.map(|at| at.to_string()).unwrap_or_default(),
            template: template_name(it.dimension.as_str(), it.target),
        }),
        samples: Some(samples(&function.samples)),
        latency_p50_ms: function.latency_p50.map(|seconds| seconds * 1000.0),
        latency_p99_ms: function.latency_p99.map(|seconds| seconds * 1000.0),
        cpu_cores: function.cpu,
        memory_bytes: function.memory,
        instances: i32::try_from(function.instances).ok(),
    }
}

fn samples(samples: &Samples) -> wire::NfrSamples {
    let values = |all: &[Option<f64>], factor: f64| {
        each(all, |it| it.map_or(f64::NAN, |value| value * factor))
    };
    wire::NfrSamples {
        start: samples.start.to_string(),
        step_seconds: samples.step.as_secs_f64(),
        throughput: values(&samples.throughput, 1.0),
        latency_p95_ms: values(&samples.latency_p95, 1000.0),
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
        conditions: each(&status.conditions, |it| wire::Condition {
            r#type: it.type_.clone(),
            status: it.status.clone(),
            reason: it.reason.clone(),
            message: it.message.clone(),
            observed_generation: it.observed_generation.unwrap_or_default(),
            last_transition_time: it.last_transition_time.0.to_string(),
        }),
        selection: status.selection.as_ref().map(|it| wire::Selection {
            template: it.template.clone(),
            profile: it.profile.clone(),
            basis: it.basis.clone(),
            scores: each(&it.scores, |score| wire::TemplateScore {
                template: score.template.clone(),
                score: score.score,
                rows: score.rows.clone(),
                rejected: score.rejected.clone().unwrap_or_default(),
            }),
        }),
        resource_refs: each(&status.resource_refs, |it| wire::ResourceRef {
            api_version: it.api_version.clone(),
            kind: it.kind.clone(),
            name: it.name.clone(),
            uid: it.uid.clone(),
        }),
        functions: each(&status.functions, |it| wire::FunctionStatus {
            key: it.key.clone(),
            condition: phase_mapping::function_state(it, status.phase, deleting).into(),
            runs_as: it.runs_as.clone().unwrap_or_default(),
            ready: it.ready,
            invocation_url: it.url.clone().unwrap_or_default(),
            public_url: it.public_url.clone().unwrap_or_default(),
            reason: it.reason.clone().unwrap_or_default(),
            error_msg: it.message.clone().unwrap_or_default(),
            nfr_compliance: None,
            odgm_connection_status: it
                .odgm_connection_status
                .map(|it| it.as_str().to_owned())
                .unwrap_or_default(),
        }),
        odgm: status.odgm.as_ref().map(|it| wire::OdgmStatus {
            ready: it.ready,
            service: it.service.clone(),
            replicas: it.replicas,
            collections: each(&it.collections, |collection| wire::OdgmCollection {
                name: collection.name.clone(),
                partition_count: collection.partition_count,
                replica_count: collection.replica_count,
                shard_type: collection.shard_type.clone(),
                persistence_mode: collection.persistence_mode.clone(),
            }),
            reason: it.reason.clone().unwrap_or_default(),
            message: it.message.clone().unwrap_or_default(),
        }),
        stable_since: status
            .stable_since
            .iter()
            .map(|(name, since)| (name.clone(), since.0.to_string()))
            .collect(),
        nfr_recommendations: each(&status.nfr_recommendations, recommendation),
        last_applied_recommendations: each(&status.last_applied_recommendations, recommendation),
        last_applied_at: time(status.last_applied_at.as_ref()),
        last_updated: time(status.last_updated.as_ref()),
        nfr_history: each(&status.nfr_history, |it| wire::NfrChange {
            at: it.at.0.to_string(),
            component: it.component.clone(),
            dimension: it.dimension.clone(),
            from: it.from,
            to: it.to,
            basis: it.basis.clone(),
            template: template_name(&it.dimension, it.to),
        }),
        oom_kills: each(&status.oom_kills, |it| wire::OomKills {
            function: it.function.clone(),
            at: it.at.0.to_string(),
            count: it.count,
            limit: it.limit,
        }),
    }
}

fn each<T, U>(items: &[T], convert: impl FnMut(&T) -> U) -> Vec<U> {
    items.iter().map(convert).collect()
}

fn recommendation(it: &Recommendation) -> wire::Recommendation {
    wire::Recommendation {
        component: it.component.clone(),
        dimension: it.dimension.clone(),
        target: it.target,
        basis: it.basis.clone().unwrap_or_default(),
        confidence: it.confidence,
        generation: it.generation,
        min: it.min,
        max: it.max,
        since: time(it.since.as_ref()),
        stopped: it
            .effect
            .as_ref()
            .and_then(EffectStatus::reason)
            .map(|it| it.to_string())
            .unwrap_or_default(),
        limit: it.limit,
        template: it.template.clone().unwrap_or_default(),
    }
}

/// The value by name; empty for other dimensions than the template.
fn template_name(dimension: &str, value: f64) -> String {
    let is_template = dimension == Dimension::Template.as_str();
    if is_template { WorkloadKind::of_value(value).as_str().to_owned() } else { String::new() }
}

/// What the cluster has and supports.
pub(super) fn cluster_info(
    service: &Service,
    correlation_id: String,
) -> Result<wire::GetClusterInfoResponse, Error> {
    service.ready()?;
    let platform = (service.platform)();
    let all = service.nodes.all();
    let ready: Vec<_> = all.iter().filter(|node| node.ready).collect();
    // A CRM that manages only its namespace may not read nodes.
    let nodes_known = service.only_namespace.is_none();
    let mut capacity = BTreeMap::new();
    if nodes_known {
        let cpu: u64 = ready.iter().map(|node| node.cpu_millis).sum();
        let memory: u64 = ready.iter().map(|node| node.memory_bytes).sum();
        capacity.insert("cpu".to_owned(), format!("{cpu}m"));
        capacity.insert("memory".to_owned(), memory.to_string());
    }
    let knative = platform.can_knative();
    let addons = ADDONS.map(|addon| (addon.name, addon.is_enabled(&platform.features)));
    let capabilities = [
        ("knative", knative),
        ("hpa", platform.can_autoscale()),
        ("prometheus", service.measures),
        ("nfr_enforcement", service.enforces),
    ];
    let templates = Template::ALL.iter().filter(|it| knative || **it != Template::Knative);
    let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let (nodes, ready_nodes) = (count(all.len()), count(ready.len()));
    Ok(wire::GetClusterInfoResponse {
        nodes_known,
        nodes,
        ready_nodes,
        availability: if nodes == 0 { 0.0 } else { f64::from(ready_nodes) / f64::from(nodes) },
        capabilities: capabilities
            .into_iter()
            .chain(addons)
            .map(|(name, has)| (name.to_owned(), has))
            .collect(),
        capacity,
        templates: templates.map(|it| it.as_str().to_owned()).collect(),
        profile: platform.profile.as_str().to_owned(),
        platform: oprc_grpc::unit::platform_to_wire(&platform),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        leading: service.leadership.holds(),
        stale: service.api_health.is_stale(),
        correlation_id,
    })
}

pub(super) fn odgm(
    info: odgm::GetClusterInfoResponse,
    collections: Vec<odgm::GetCollectionStatusResponse>,
    correlation_id: String,
) -> wire::GetOdgmStatusResponse {
    let nodes = info.nodes.into_iter().map(|node| wire::OdgmNode {
        node_id: node.node_id,
        address: node.address,
        status: node.status,
        last_heartbeat: node.last_heartbeat,
    });
    let collections = collections.into_iter().map(|it| wire::OdgmCollectionHealth {
        healthy: it.active_partitions == it.partition_count,
        name: it.collection_name,
        partition_count: it.partition_count,
        active_partitions: it.active_partitions,
        total_objects: it.total_objects,
    });
    wire::GetOdgmStatusResponse {
        cluster_id: info.cluster_id,
        nodes: nodes.collect(),
        collections: collections.collect(),
        total_shards: info.total_shards,
        active_shards: info.active_shards,
        balance_score: info.balance_score,
        leader_node: info.leader_node,
        current_term: info.current_term,
        committed_index: info.committed_index,
        correlation_id,
        store_bytes: info.store_bytes,
        store_quota_bytes: info.store_quota_bytes,
        low_on_space: info.low_on_space,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use oprc_nfr::compliance::{Requirement, State, Verdict};
    use serde_json::json;

    use super::*;
    use crate::{decode::decode, observations::RequirementVerdict};

    #[test]
    fn functions_have_the_latest_measurements() {
        let raw = json!({
            "metadata": {"name": "shop", "namespace": "n"},
            "status": {"functions": [{"key": "cart"}, {"key": "other"}]},
        });
        let shop = decode(&serde_json::from_value(raw).unwrap());
        let verdict =
            Verdict { state: State::Violated, since: 1_800_000_000_000, observed: Some(250.0) };
        let cart = FunctionObservation {
            throughput: Some(20.0),
            latency_p95: Some(0.25),
            requirements: vec![RequirementVerdict {
                requirement: Requirement::Latency(100.0),
                required: 100.0,
                verdict,
                error_budget: Some(0.5),
            }],
            ..FunctionObservation::default()
        };
        let functions = BTreeMap::from([("cart".to_owned(), cart)]);
        let classes = BTreeMap::from([(("n".to_owned(), "shop".to_owned()), functions)]);
        let observations = Observations {
            observed_at: Some(Timestamp::from_second(1_800_000_060).unwrap()),
            failure: None,
            classes: Arc::new(classes),
        };
        let functions = class(&shop, &observations).status.unwrap().functions;
        let found = functions[0].nfr_compliance.clone().unwrap();
        assert_eq!((found.throughput_actual, found.latency_p95_ms), (Some(20.0), Some(250.0)));
        assert_eq!(found.availability_actual, None);
        assert_eq!(found.observed_at, "2027-01-15T08:01:00Z");
        let latency = &found.requirements[0];
        assert_eq!((latency.requirement.as_str(), latency.state.as_str()), ("latency", "violated"));
        assert_eq!(latency.since, "2027-01-15T08:00:00Z");
        assert_eq!(functions[1].nfr_compliance, None);
        let nothing = class(&shop, &Observations::default()).status.unwrap().functions;
        assert_eq!(nothing[0].nfr_compliance, None);
    }

    #[test]
    fn follower_has_the_verdicts_of_status_without_live_values() {
        let at = "2027-01-15T08:00:00Z";
        let entry = |function: &str, requirement: &str, state: &str| {
            json!({
                "function": function, "requirement": requirement, "state": state, "since": at,
                "required": 100.0, "observed": 250.0,
            })
        };
        let mut unknown = entry("cart", "throughput", "unknown");
        unknown["reason"] = json!("NoData");
        let raw = json!({
            "metadata": {"name": "shop", "namespace": "n"},
            "status": {
                "functions": [{"key": "cart"}, {"key": "other"}],
                "nfr_compliance": [entry("cart", "latency", "violated"), unknown],
                "nfr_recommendations": [{"component": "cart", "dimension": "replicas", "target": 3.0}],
            },
        });
        let shop = decode(&serde_json::from_value(raw).unwrap());
        let status = class(&shop, &Observations::default()).status.unwrap();
        let verdict = |requirement: &str, state: &str, reason: &str| wire::RequirementCompliance {
            requirement: requirement.to_owned(),
            state: state.to_owned(),
            since: at.to_owned(),
            required: Some(100.0),
            reason: reason.to_owned(),
            ..wire::RequirementCompliance::default()
        };
        let requirements =
            vec![verdict("latency", "violated", ""), verdict("throughput", "unknown", "NoData")];
        let expected = wire::NfrCompliance { requirements, ..wire::NfrCompliance::default() };
        assert_eq!(status.functions[0].nfr_compliance, Some(expected));
        assert_eq!(status.functions[1].nfr_compliance, None);
        assert_eq!(status.nfr_recommendations.len(), 1);
    }

    #[test]
    fn status_has_limits_and_out_of_memory_kills() {
        let at = "2027-01-15T08:00:00Z";
        let raw = json!({
            "metadata": {"name": "shop", "namespace": "n"},
            "status": {
                "nfr_recommendations": [
                    {"component": "cart", "dimension": "memory", "target": 2.0, "limit": 4.0},
                    {"component": "cart", "dimension": "cpu", "target": 0.5},
                ],
                "oom_kills": [
                    {"function": "cart", "at": at, "count": 3, "limit": 1.0, "made_for": "x"},
                    {"function": "pay", "at": at, "count": 1, "made_for": "x"},
                ],
            },
        });
        let shop = decode(&serde_json::from_value(raw).unwrap());
        let status = class(&shop, &Observations::default()).status.unwrap();
        let limits: Vec<_> = status.nfr_recommendations.iter().map(|it| it.limit).collect();
        assert_eq!(limits, [Some(4.0), None]);
        let kills = |function: &str, count, limit| wire::OomKills {
            function: function.to_owned(),
            at: at.to_owned(),
            count,
            limit,
        };
        assert_eq!(status.oom_kills, [kills("cart", 3, Some(1.0)), kills("pay", 1, None)]);
    }
}
