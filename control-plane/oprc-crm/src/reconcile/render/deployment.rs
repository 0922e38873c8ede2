//! The Deployment of a function.

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment},
        core::v1::{Lifecycle, LifecycleHandler, PodTemplateSpec, SleepAction},
    },
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};
use oprc_unit::ValidFunction;

use super::{
    Context, FunctionPlan, Wanted, labels,
    pod::{self, LAME_DUCK_SECONDS},
    wanted,
};
use crate::kinds::DEPLOYMENT;

/// The name of the port that a function listens on.
pub(super) const HTTP: &str = "http";

/// Builds it.
pub(super) fn deployment(
    context: &Context<'_>,
    function: &ValidFunction,
    plan: &FunctionPlan,
) -> Wanted {
    let mut container = context.container(function, HTTP);
    let probes = pod::probes(function, &IntOrString::String(HTTP.to_owned()));
    container.startup_probe = Some(probes.startup);
    container.readiness_probe = Some(probes.readiness);
    container.liveness_probe = Some(probes.liveness);
    // Knative sets this by itself, and lets nobody else.
    if let Some(env) = &mut container.env {
        env.push(pod::variable("PORT", function.port.to_string()));
    }
    // Calls arrive until the last node has heard that the pod is going.
    container.lifecycle = Some(Lifecycle {
        pre_stop: Some(LifecycleHandler {
            sleep: Some(SleepAction { seconds: LAME_DUCK_SECONDS }),
            ..LifecycleHandler::default()
        }),
        ..Lifecycle::default()
    });
    let mut spec = pod::pod_spec(function, container);
    spec.termination_grace_period_seconds = Some(pod::grace_seconds(function));
    spec.topology_spread_constraints = context.spread(plan);
    let object = Deployment {
        metadata: context.meta(&plan.workload, context.function_labels(plan)),
        spec: Some(DeploymentSpec {
            replicas: Some(plan.min),
            revision_history_limit: Some(2),
            selector: labels::selector(context.function_selector(plan)),
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: Some(IntOrString::String("25%".to_owned())),
                    max_unavailable: Some(IntOrString::Int(0)),
                }),
            }),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(context.function_labels(plan)),
                    annotations: Some(context.scrape_function(function.port))
                        .filter(|it| !it.is_empty()),
                    ..ObjectMeta::default()
                }),
                spec: Some(spec),
            },
            ..DeploymentSpec::default()
        }),
        status: None,
    };
    Wanted {
        waits_for_odgm: true,
        runs_with_odgm: context.class.odgm.is_some(),
        ..wanted(DEPLOYMENT, &plan.workload, &object)
    }
}
