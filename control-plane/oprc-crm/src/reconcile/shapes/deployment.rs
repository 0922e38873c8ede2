//! A function as a Deployment with a Service, an autoscaler and a disruption budget.

use k8s_openapi::{
    api::{
        apps::v1::DeploymentStatus,
        core::v1::{Lifecycle, LifecycleHandler, PodTemplateSpec, ServiceSpec, SleepAction},
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use oprc_unit::{ValidFunction, names};
use serde_json::Value;

use super::{
    super::manifest::{
        self, Context, DesiredObject, FunctionPlan, HTTP, autoscaler, budget,
        pod::{self, LAME_DUCK_SECONDS},
        proxy, service_port,
    },
    Assessed, Component, Observation, ObservedState, Required, Workload, WorkloadShape,
    creation_problem, spec_replicas, status, text,
};
use crate::kinds::{DEPLOYMENT, SERVICE};

/// The port of every function's Service, whatever port the container listens on.
const PORT: i32 = 80;

pub(crate) static SHAPE: WorkloadShape = WorkloadShape {
    kind: DEPLOYMENT,
    address_kind: Some(SERVICE),
    needs_autoscaler: true,
    takes_init_containers: true,
    workload_name: |identity, key| names::function(&identity.base, key),
    objects,
    assess,
};

fn objects(
    context: &Context<'_>,
    function: &ValidFunction,
    plan: &FunctionPlan,
) -> Vec<DesiredObject> {
    let meta = || context.meta(&plan.workload, context.function_labels(plan));
    let deployment = manifest::deployment(
        meta(),
        context.function_selector(plan),
        plan.floor,
        [IntOrString::String("25%".to_owned()), IntOrString::Int(0)],
        pods(context, function, plan),
    );
    let mut objects = vec![service(context, plan), deployment];
    objects.extend(plan.autoscaled.then(|| autoscaler(context, plan)));
    objects.extend(plan.is_many().then(|| budget(meta(), context.function_selector(plan), 1)));
    objects
}

/// The Service of a function.
pub(super) fn service(context: &Context<'_>, plan: &FunctionPlan) -> DesiredObject {
    let spec = ServiceSpec {
        selector: Some(context.function_selector(plan)),
        ports: Some(vec![service_port(HTTP, PORT)]),
        ..ServiceSpec::default()
    };
    manifest::service(context.meta(&plan.workload, context.function_labels(plan)), spec)
}

fn assess(workload: &Assessed<'_>) -> Component {
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

/// The status of a Deployment, be it a function's or the data grid's.
pub(super) fn observe(object: &Value, generation: i64) -> Observation {
    let status: DeploymentStatus = status(object);
    let condition = |name: &str| status.conditions.iter().flatten().find(|it| it.type_ == name);
    let rolled_out = condition("Progressing")
        .filter(|it| it.reason.as_deref() == Some("NewReplicaSetAvailable"));
    let failure = condition("ReplicaFailure").filter(|it| it.status == "True");
    let state = ObservedState::Workload(Workload {
        current: status.observed_generation.unwrap_or(0) >= generation,
        replicas: spec_replicas(object),
        updated: status.updated_replicas.unwrap_or(0),
        available: status.available_replicas.unwrap_or(0),
        total: status.replicas.unwrap_or(0),
        rolled_out: rolled_out.is_some(),
        failure: failure.and_then(|it| it.message.clone()),
        revisions: None,
    });
    (state, rolled_out.and_then(|it| Some(it.last_update_time.as_ref()?.0)))
}

pub(super) fn observe_autoscaler(object: &Value, _: i64) -> Observation {
    let target = |pointer: &str| text(object, pointer).unwrap_or_default();
    let [kind, name] = ["/spec/scaleTargetRef/kind", "/spec/scaleTargetRef/name"].map(target);
    (ObservedState::Autoscaler(kind, name), None)
}

fn lame_duck() -> LifecycleHandler {
    LifecycleHandler {
        sleep: Some(SleepAction { seconds: LAME_DUCK_SECONDS }),
        ..LifecycleHandler::default()
    }
}

/// The pods of a function that serves calls through a Service.
pub(super) fn pods(
    context: &Context<'_>,
    function: &ValidFunction,
    plan: &FunctionPlan,
) -> PodTemplateSpec {
    let port_name = if plan.proxied { proxy::APP } else { HTTP };
    let port = IntOrString::String(port_name.to_owned());
    let container = context.container(function, plan, port_name);
    let mut container = pod::with_probes(container, function, port);
    // Knative sets this itself and rejects it in the manifest.
    if let Some(env) = &mut container.env {
        env.push(pod::variable("PORT", function.port.to_string()));
    }
    // Calls arrive until every node has removed the terminating pod from its endpoints.
    let pre_stop = if plan.proxied { proxy::drain() } else { lame_duck() };
    container.lifecycle = Some(Lifecycle { pre_stop: Some(pre_stop), ..Lifecycle::default() });
    let mut spec = pod::pod_spec(function, container);
    let proxy = plan.proxied.then(|| context.proxy(function));
    // The proxy starts while the data grid does.
    let init_containers = proxy.into_iter().chain(context.wait_for_grid()).collect::<Vec<_>>();
    spec.init_containers = (!init_containers.is_empty()).then_some(init_containers);
    spec.termination_grace_period_seconds = Some(pod::grace_seconds(function, plan.proxied));
    spec.topology_spread_constraints = Some(context.spread(plan));
    let labels = context.function_labels(plan);
    let scrape = context.scrape_function(function.port);
    pod::pod_template(labels, scrape, spec)
}
