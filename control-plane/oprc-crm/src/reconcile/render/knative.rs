//! The Knative Service of a function.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::PodSpec,
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};
use oprc_unit::{ValidFunction, spec::Access};
use serde::Serialize;

use super::{Context, FunctionPlan, Wanted, pod, wanted};
use crate::kinds::KNATIVE_SERVICE;

const VISIBILITY: &str = "networking.knative.dev/visibility";
const MIN_SCALE: &str = "autoscaling.knative.dev/min-scale";
const MAX_SCALE: &str = "autoscaling.knative.dev/max-scale";

/// What we say of a Knative Service; there is no crate with its types.
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

/// Builds it.
pub(super) fn service(
    context: &Context<'_>,
    function: &ValidFunction,
    plan: &FunctionPlan,
) -> Wanted {
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
    Wanted {
        waits_for_odgm: true,
        runs_with_odgm: context.class.odgm.is_some(),
        ..wanted(KNATIVE_SERVICE, &plan.workload, &object)
    }
}
