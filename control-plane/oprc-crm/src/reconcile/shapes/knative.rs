//! A function as a Knative Service.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::PodSpec,
    apimachinery::pkg::{
        apis::meta::v1::{ObjectMeta, Time},
        util::intstr::IntOrString,
    },
};
use oprc_unit::{Identity, ValidFunction, names, spec::Access};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    super::{
        manifest::{Context, DesiredObject, FunctionPlan, desired_object, pod},
        pod_problem::Problem,
    },
    Assessed, Component, Observation, ObservedState, WorkloadShape, status, timestamp,
};
use crate::{
    kinds::{KNATIVE_SERVICE, Kind},
    reason::Reason,
};

const VISIBILITY: &str = "networking.knative.dev/visibility";
const MIN_SCALE: &str = "autoscaling.knative.dev/min-scale";
const MAX_SCALE: &str = "autoscaling.knative.dev/max-scale";

pub(in crate::reconcile) struct KnativeShape;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnativeStatus {
    /// Whether the status is about the latest specification.
    pub current: bool,
    /// The condition `Ready`; none while it is unknown.
    pub ready: Option<bool>,
    /// Whether traffic reaches a revision, be it the latest or an earlier one.
    pub routed: bool,
    pub reason: Option<String>,
    pub message: Option<String>,
    /// The public URL.
    pub url: Option<String>,
    /// The cluster-local URL.
    pub address: Option<String>,
}

impl WorkloadShape for KnativeShape {
    fn kind(&self) -> Kind {
        KNATIVE_SERVICE
    }

    fn address_kind(&self) -> Option<Kind> {
        Some(KNATIVE_SERVICE)
    }

    fn workload_name(&self, identity: &Identity, key: Option<&str>) -> String {
        names::knative(&identity.base, key)
    }

    fn objects(
        &self,
        context: &Context<'_>,
        function: &ValidFunction,
        plan: &FunctionPlan,
    ) -> Vec<DesiredObject> {
        vec![service(context, function, plan)]
    }

    fn assess(&self, workload: &Assessed<'_>) -> Component {
        let ObservedState::Knative(state) = workload.state else { return Component::default() };
        let failed = state.current && state.ready == Some(false);
        Component {
            ready: !workload.deleting && state.current && state.ready == Some(true),
            serving: !workload.deleting && (state.routed || state.ready == Some(true)),
            url: state.address.clone(),
            public_url: state.url.clone().filter(|url| Some(url) != state.address.as_ref()),
            problem: failed.then(|| Problem {
                reason: Reason::KnativeNotReady,
                message: format!(
                    "{}: {}",
                    state.reason.as_deref().unwrap_or("no reason"),
                    state.message.as_deref().unwrap_or("no message")
                ),
            }),
            ..Component::default()
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    observed_generation: i64,
    conditions: Vec<Condition>,
    url: Option<String>,
    address: Address,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    r#type: String,
    status: String,
    reason: Option<String>,
    message: Option<String>,
    last_transition_time: Option<Time>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Address {
    url: Option<String>,
}

pub(super) fn observe(object: &Value, generation: i64) -> Observation {
    let status: Status = status(object);
    let condition = |name: &str| status.conditions.iter().find(|it| it.r#type == name);
    let ready = condition("Ready");
    Observation {
        state: ObservedState::Knative(KnativeStatus {
            current: status.observed_generation >= generation,
            ready: ready.and_then(|it| it.status.to_ascii_lowercase().parse().ok()),
            routed: condition("RoutesReady").is_some_and(|it| it.status == "True"),
            reason: ready.and_then(|it| it.reason.clone()),
            message: ready.and_then(|it| it.message.clone()),
            url: status.url.clone(),
            address: status.address.url.clone(),
        }),
        ready_since: timestamp(ready.and_then(|it| it.last_transition_time.as_ref())),
    }
}

/// The part of a Knative Service that CRM sets; no crate has its types.
#[derive(Serialize)]
struct Service {
    metadata: ObjectMeta,
    spec: ServiceSpec,
}

#[derive(Serialize)]
struct ServiceSpec {
    template: RevisionTemplate,
}

#[derive(Serialize)]
struct RevisionTemplate {
    metadata: ObjectMeta,
    spec: RevisionSpec,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RevisionSpec {
    #[serde(flatten)]
    pod: PodSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    container_concurrency: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_seconds: Option<i32>,
}

fn service(context: &Context<'_>, function: &ValidFunction, plan: &FunctionPlan) -> DesiredObject {
    let mut container = context.container(function, "http1");
    let probes = pod::probes(function, &IntOrString::Int(function.port));
    container.startup_probe = Some(probes.startup);
    container.readiness_probe = Some(probes.readiness);
    container.liveness_probe = Some(probes.liveness);
    let spec = pod::pod_spec(function, container);
    let mut labels = context.function_labels(plan);
    let template_labels = labels.clone();
    if function.access != Access::Public {
        labels.insert(VISIBILITY.to_owned(), "cluster-local".to_owned());
    }
    let mut annotations: BTreeMap<_, _> = context.scrape_function(function.port);
    annotations.insert(MIN_SCALE.to_owned(), plan.min.to_string());
    if plan.max > 0 {
        annotations.insert(MAX_SCALE.to_owned(), plan.max.to_string());
    }
    let object = Service {
        metadata: context.meta(&plan.workload, labels),
        spec: ServiceSpec {
            template: RevisionTemplate {
                metadata: ObjectMeta {
                    labels: Some(template_labels),
                    annotations: Some(annotations),
                    ..ObjectMeta::default()
                },
                spec: RevisionSpec {
                    pod: spec,
                    container_concurrency: function.max_concurrency,
                    timeout_seconds: function.timeout_seconds(),
                },
            },
        },
    };
    DesiredObject {
        waits_for_odgm: true,
        runs_with_odgm: context.class.odgm.is_some(),
        ..desired_object(KNATIVE_SERVICE, &plan.workload, &object)
    }
}
