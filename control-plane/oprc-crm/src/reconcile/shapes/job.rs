//! A function as a Job: one run to completion for each generation of its class.

use k8s_openapi::{
    api::{
        batch::v1::{Job, JobSpec, JobStatus},
        core::v1::PodTemplateSpec,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use oprc_unit::{Identity, ValidFunction, names};
use serde_json::Value;

use super::{
    super::{
        manifest::{Context, DesiredObject, FunctionPlan, HTTP, desired_object, pod},
        pod_problem::Problem,
    },
    Assessed, Component, Observation, ObservedState, WorkloadShape, creation_problem, status,
    timestamp,
};
use crate::{
    kinds::{JOB, Kind},
    reason::Reason,
};

const RETRIES: i32 = 3;

pub(in crate::reconcile) struct JobShape;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobState {
    pub complete: bool,
    /// Whether it has or had a pod.
    pub begun: bool,
    /// Why it failed.
    pub failed: Option<String>,
}

impl WorkloadShape for JobShape {
    fn kind(&self) -> Kind {
        JOB
    }

    fn address_kind(&self) -> Option<Kind> {
        None
    }

    fn workload_name(&self, identity: &Identity, key: Option<&str>) -> String {
        names::job(&identity.base, key, identity.generation)
    }

    fn objects(
        &self,
        context: &Context<'_>,
        function: &ValidFunction,
        plan: &FunctionPlan,
    ) -> Vec<DesiredObject> {
        vec![job(context, function, plan)]
    }

    fn assess(&self, workload: &Assessed<'_>) -> Component {
        let ObservedState::Job(state) = workload.state else { return Component::default() };
        let failed = state.failed.clone();
        let failed = failed.map(|message| Problem { reason: Reason::JobFailed, message });
        let creation = || workload.creation_failure.as_deref().map(creation_problem);
        Component {
            ready: state.complete,
            serving: state.complete,
            completed: state.complete,
            problem: failed.or_else(creation),
            ..Component::default()
        }
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
    Observation {
        state: ObservedState::Job(JobState {
            complete: complete.is_some(),
            begun: pods.into_iter().flatten().any(|count| count > 0),
            failed: is_true("Failed")
                .map(|it| it.message.clone().unwrap_or_else(|| "the Job failed".to_owned())),
        }),
        ready_since: timestamp(complete.and_then(|it| it.last_transition_time.as_ref())),
    }
}

fn job(context: &Context<'_>, function: &ValidFunction, plan: &FunctionPlan) -> DesiredObject {
    let mut container = context.container(function, HTTP);
    // Nobody calls it.
    container.ports = None;
    let mut spec = pod::pod_spec(function, container);
    spec.restart_policy = Some("Never".to_owned());
    let object = Job {
        metadata: context.meta(&plan.workload, context.function_labels(plan)),
        spec: Some(JobSpec {
            backoff_limit: Some(RETRIES),
            active_deadline_seconds: function.timeout_seconds().map(i64::from),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(context.function_labels(plan)),
                    ..ObjectMeta::default()
                }),
                spec: Some(spec),
            },
            ..JobSpec::default()
        }),
        status: None,
    };
    DesiredObject {
        runs_once: true,
        waits_for_odgm: true,
        ..desired_object(JOB, &plan.workload, &object)
    }
}
