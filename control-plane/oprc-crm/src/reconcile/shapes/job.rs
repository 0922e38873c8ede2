//! A function as a Job: one run to completion for each generation of its class.

use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use oprc_unit::{ValidFunction, names};
use serde_json::Value;

use super::{
    super::manifest::{Context, DesiredObject, FunctionPlan, HTTP, Labels, desired_object, pod},
    Assessed, Component, Observation, ObservedState, WorkloadShape, creation_problem, status,
};
use crate::{
    kinds::JOB,
    reason::{Failure, Reason},
};

const RETRIES: i32 = 3;

pub(crate) static SHAPE: WorkloadShape = WorkloadShape {
    kind: JOB,
    address_kind: None,
    needs_autoscaler: false,
    takes_init_containers: false,
    workload_name: |identity, key| names::job(&identity.base, key, identity.generation),
    objects: |context, function, plan| vec![job(context, function, plan)],
    assess,
};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobState {
    pub complete: bool,
    /// Whether it has or had a pod.
    pub begun: bool,
    /// Why it failed.
    pub failed: Option<String>,
}

fn assess(workload: &Assessed<'_>) -> Component {
    let ObservedState::Job(state) = workload.state else { return Component::default() };
    let failed = state.failed.clone();
    let failed = failed.map(|message| Failure { reason: Reason::JobFailed, message });
    let creation = || workload.creation_failure.as_deref().map(creation_problem);
    Component {
        ready: state.complete,
        serving: state.complete,
        completed: state.complete,
        problem: failed.or_else(creation),
        ..Component::default()
    }
}

pub(super) fn observe(object: &Value, _: i64) -> Observation {
    let status: JobStatus = status(object);
    let is_true = |name: &str| {
        let mut all = status.conditions.iter().flatten();
        all.find(|it| it.type_ == name && it.status == "True")
    };
    let complete = is_true("Complete");
    let pods = [status.active, status.succeeded, status.failed];
    let state = ObservedState::Job(JobState {
        complete: complete.is_some(),
        begun: pods.into_iter().flatten().any(|count| count > 0),
        failed: is_true("Failed")
            .map(|it| it.message.clone().unwrap_or_else(|| "the Job failed".to_owned())),
    });
    (state, complete.and_then(|it| Some(it.last_transition_time.as_ref()?.0)))
}

fn job(context: &Context<'_>, function: &ValidFunction, plan: &FunctionPlan) -> DesiredObject {
    let mut container = context.container(function, plan, HTTP);
    // Nobody calls it.
    container.ports = None;
    let mut spec = pod::pod_spec(function, container);
    spec.restart_policy = Some("Never".to_owned());
    let labels = context.function_labels(plan);
    let object = Job {
        metadata: context.meta(&plan.workload, labels.clone()),
        spec: Some(JobSpec {
            backoff_limit: Some(RETRIES),
            active_deadline_seconds: function.timeout_seconds().map(i64::from),
            template: pod::pod_template(labels, Labels::new(), spec),
            ..JobSpec::default()
        }),
        status: None,
    };
    desired_object(JOB, &object)
}
