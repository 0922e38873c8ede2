//! A function as a Knative Service.

use k8s_openapi::{
    api::{apps::v1::DeploymentCondition, core::v1::PodSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};
use oprc_unit::{ValidFunction, names, spec::Access};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    super::manifest::{Context, DesiredObject, FunctionPlan, desired_object, pod},
    Assessed, Component, Observation, ObservedState, WorkloadShape, quota_or, status, text,
};
use crate::{kinds::KNATIVE_SERVICE, reason::Reason};

const VISIBILITY: &str = "networking.knative.dev/visibility";
pub(crate) const MIN_SCALE: &str = "autoscaling.knative.dev/min-scale";
const MAX_SCALE: &str = "autoscaling.knative.dev/max-scale";

pub(crate) static SHAPE: WorkloadShape = WorkloadShape {
    kind: KNATIVE_SERVICE,
    address_kind: Some(KNATIVE_SERVICE),
    needs_autoscaler: false,
    takes_init_containers: false,
    workload_name: |identity, key| names::knative(&identity.base, key),
    objects: |context, function, plan| vec![service(context, function, plan)],
    assess,
};

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
    /// The revision that serves.
    pub revision: Option<String>,
    /// The public URL.
    pub url: Option<String>,
    /// The cluster-local URL.
    pub address: Option<String>,
}

fn assess(workload: &Assessed<'_>) -> Component {
    let ObservedState::Knative(state) = workload.state else { return Component::default() };
    let failed = state.current && state.ready == Some(false);
    let reason = state.reason.as_deref().unwrap_or("no reason");
    let message = state.message.as_deref().unwrap_or("no message");
    Component {
        ready: !workload.deleting && state.current && state.ready == Some(true),
        serving: !workload.deleting && (state.routed || state.ready == Some(true)),
        url: state.address.clone(),
        public_url: state.url.clone().filter(|url| Some(url) != state.address.as_ref()),
        problem: failed.then(|| quota_or(Reason::KnativeNotReady, &format!("{reason}: {message}"))),
        ..Component::default()
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    observed_generation: i64,
    /// They have the fields of a Deployment's conditions.
    conditions: Vec<DeploymentCondition>,
}

pub(super) fn observe(object: &Value, generation: i64) -> Observation {
    let status: Status = status(object);
    let condition = |name: &str| status.conditions.iter().find(|it| it.type_ == name);
    let ready = condition("Ready");
    let state = ObservedState::Knative(KnativeStatus {
        current: status.observed_generation >= generation,
        ready: ready.and_then(|it| it.status.to_ascii_lowercase().parse().ok()),
        routed: condition("RoutesReady").is_some_and(|it| it.status == "True"),
        reason: ready.and_then(|it| it.reason.clone()),
        message: ready.and_then(|it| it.message.clone()),
        revision: text(object, "/status/latestReadyRevisionName"),
        url: text(object, "/status/url"),
        address: text(object, "/status/address/url"),
    });
    (state, ready.and_then(|it| Some(it.last_transition_time.as_ref()?.0)))
}

/// No crate has the types of Knative.
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
    let container = context.container(function, plan, "http1");
    let container = pod::with_probes(container, function, IntOrString::Int(function.port));
    let mut labels = context.function_labels(plan);
    let template_labels = labels.clone();
    if function.access != Access::Public {
        labels.insert(VISIBILITY.to_owned(), "cluster-local".to_owned());
    }
    let mut annotations = context.scrape_function(function.port);
    annotations.insert(MIN_SCALE.to_owned(), plan.floor.to_string());
    if plan.max > 0 {
        annotations.insert(MAX_SCALE.to_owned(), plan.max.to_string());
    }
    let spec = RevisionSpec {
        pod: pod::pod_spec(function, container),
        container_concurrency: function.max_concurrency,
        timeout_seconds: function.timeout_seconds(),
    };
    let template_meta = pod::template_meta(template_labels, annotations);
    let template = json!({"metadata": template_meta, "spec": spec});
    let metadata = context.meta(&plan.workload, labels);
    desired_object(KNATIVE_SERVICE, &json!({"metadata": metadata, "spec": {"template": template}}))
}
