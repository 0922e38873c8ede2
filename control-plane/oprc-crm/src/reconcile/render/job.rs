//! The Job of a function: one run to completion for each generation of its class.

use k8s_openapi::{
    api::{
        batch::v1::{Job, JobSpec},
        core::v1::PodTemplateSpec,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use oprc_unit::ValidFunction;

use super::{Context, FunctionPlan, Wanted, pod, wanted};
use crate::kinds::JOB;

/// How often a run that failed is begun again.
const RETRIES: i32 = 3;

/// Builds it.
pub(super) fn job(context: &Context<'_>, function: &ValidFunction, plan: &FunctionPlan) -> Wanted {
    let mut container = context.container(function, super::deployment::HTTP);
    // Nobody calls it.
    container.ports = None;
    let mut spec = pod::pod_spec(function, container);
    spec.restart_policy = Some("Never".to_owned());
    let object = Job {
        metadata: context.meta(&plan.workload, context.function_labels(plan)),
        spec: Some(JobSpec {
            backoff_limit: Some(RETRIES),
            active_deadline_seconds: function
                .timeout_ms
                .map(|timeout| i64::from(timeout).div_euclid(1000).max(1)),
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
    Wanted { runs_once: true, waits_for_odgm: true, ..wanted(JOB, &plan.workload, &object) }
}
