//! The PodDisruptionBudget of a workload.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};

use super::{Context, DesiredObject, FunctionPlan, desired_object, labels};
use crate::kinds::DISRUPTION_BUDGET;

pub(in crate::reconcile) fn function_budget(
    context: &Context<'_>,
    plan: &FunctionPlan,
) -> DesiredObject {
    let meta = context.meta(&plan.workload, context.function_labels(plan));
    DesiredObject {
        waits_for_odgm: true,
        ..budget(&plan.workload, meta, context.function_selector(plan))
    }
}

pub(in crate::reconcile) fn budget(
    name: &str,
    metadata: ObjectMeta,
    selector: BTreeMap<String, String>,
) -> DesiredObject {
    let object = PodDisruptionBudget {
        metadata,
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(labels::selector(selector)),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    };
    desired_object(DISRUPTION_BUDGET, name, &object)
}
