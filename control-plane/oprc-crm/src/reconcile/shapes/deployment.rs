//! A function as a Deployment with a Service, an autoscaler and a disruption budget.

use k8s_openapi::{
    api::{
        apps::v1::{
            Deployment, DeploymentSpec, DeploymentStatus, DeploymentStrategy,
            RollingUpdateDeployment,
        },
        core::v1::{
            Lifecycle, LifecycleHandler, PodTemplateSpec, Service, ServicePort, ServiceSpec,
            SleepAction,
        },
    },
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};
use oprc_unit::{Identity, ValidFunction, names};
use serde_json::Value;

use super::{
    super::manifest::{
        Context, DesiredObject, FunctionPlan, HTTP, autoscaler, desired_object, function_budget,
        pod::{self, LAME_DUCK_SECONDS},
        selector,
    },
    Assessed, Component, Observation, ObservedState, Required, Workload, WorkloadShape,
    creation_problem, spec_replicas, status, text, timestamp,
};
use crate::kinds::{DEPLOYMENT, Kind, SERVICE};

/// The port of every function's Service, whatever port the container listens on.
const PORT: i32 = 80;

pub(in crate::reconcile) struct DeploymentShape;

impl WorkloadShape for DeploymentShape {
    fn kind(&self) -> Kind {
        DEPLOYMENT
    }

    fn address_kind(&self) -> Option<Kind> {
        Some(SERVICE)
    }

    fn needs_autoscaler(&self) -> bool {
        true
    }

    fn enforces_concurrency(&self) -> bool {
        false
    }

    fn workload_name(&self, identity: &Identity, key: Option<&str>) -> String {
        names::function(&identity.base, key)
    }

    fn objects(
        &self,
        context: &Context<'_>,
        function: &ValidFunction,
        plan: &FunctionPlan,
    ) -> Vec<DesiredObject> {
        let mut objects = vec![service(context, plan), deployment(context, function, plan)];
        objects.extend(plan.autoscaled.then(|| autoscaler(context, plan)));
        objects.extend(plan.is_many().then(|| function_budget(context, plan)));
        objects
    }

    fn assess(&self, workload: &Assessed<'_>) -> Component {
        let ObservedState::Workload(state) = workload.state else { return Component::default() };
        let Required { min, varies, scaled_by_others } = workload.required;
        let min = if scaled_by_others { min.min(state.replicas) } else { min };
        let reachable = workload.has_service && !workload.deleting;
        Component {
            ready: reachable && state.is_complete(min, varies || scaled_by_others),
            serving: reachable && state.available >= min,
            problem: state.failure.as_deref().map(creation_problem),
            ..Component::default()
        }
    }
}

/// The status of a Deployment, be it a function's or the data grid's.
pub(super) fn observe(object: &Value, generation: i64) -> Observation {
    let status: DeploymentStatus = status(object);
    let condition = |name: &str| status.conditions.iter().flatten().find(|it| it.type_ == name);
    let rolled_out = condition("Progressing")
        .filter(|it| it.reason.as_deref() == Some("NewReplicaSetAvailable"));
    let failure = condition("ReplicaFailure").filter(|it| it.status == "True");
    Observation {
        state: ObservedState::Workload(Workload {
            current: status.observed_generation.unwrap_or(0) >= generation,
            replicas: spec_replicas(object),
            updated: status.updated_replicas.unwrap_or(0),
            available: status.available_replicas.unwrap_or(0),
            total: status.replicas.unwrap_or(0),
            rolled_out: rolled_out.is_some(),
            failure: failure.and_then(|it| it.message.clone()),
        }),
        ready_since: timestamp(rolled_out.and_then(|it| it.last_update_time.as_ref())),
    }
}

pub(super) fn observe_autoscaler(object: &Value, _: i64) -> Observation {
    let target =
        |field: &str| text(object, &format!("/spec/scaleTargetRef/{field}")).unwrap_or_default();
    let state = ObservedState::Autoscaler(target("kind"), target("name"));
    Observation { state, ready_since: None }
}

fn service(context: &Context<'_>, plan: &FunctionPlan) -> DesiredObject {
    let object = Service {
        metadata: context.meta(&plan.workload, context.function_labels(plan)),
        spec: Some(ServiceSpec {
            selector: Some(context.function_selector(plan)),
            ports: Some(vec![ServicePort {
                name: Some(HTTP.to_owned()),
                port: PORT,
                protocol: Some("TCP".to_owned()),
                target_port: Some(IntOrString::String(HTTP.to_owned())),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    };
    desired_object(SERVICE, &plan.workload, &object)
}

fn deployment(
    context: &Context<'_>,
    function: &ValidFunction,
    plan: &FunctionPlan,
) -> DesiredObject {
    let mut container = context.container(function, HTTP);
    let probes = pod::probes(function, &IntOrString::String(HTTP.to_owned()));
    container.startup_probe = Some(probes.startup);
    container.readiness_probe = Some(probes.readiness);
    container.liveness_probe = Some(probes.liveness);
    // Knative sets this itself and rejects it in the manifest.
    if let Some(env) = &mut container.env {
        env.push(pod::variable("PORT", function.port.to_string()));
    }
    // Calls arrive until every node has removed the terminating pod from its endpoints.
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
            selector: selector(context.function_selector(plan)),
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
    DesiredObject {
        waits_for_odgm: true,
        runs_with_odgm: context.class.odgm.is_some(),
        ..desired_object(DEPLOYMENT, &plan.workload, &object)
    }
}
