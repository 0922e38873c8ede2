//! Keeps pods of one workload from being evicted all at once.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};

use super::{Context, FunctionPlan, Wanted, labels, wanted};
use crate::kinds::DISRUPTION_BUDGET;

/// Of a function.
pub(super) fn of_function(context: &Context<'_>, plan: &FunctionPlan) -> Wanted {
    let meta = context.meta(&plan.workload, context.function_labels(plan));
    Wanted { waits_for_odgm: true, ..budget(&plan.workload, meta, context.function_selector(plan)) }
}

/// Of any workload.
pub(super) fn budget(
    name: &str,
    metadata: ObjectMeta,
    selector: BTreeMap<String, String>,
) -> Wanted {
    let object = PodDisruptionBudget {
        metadata,
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(labels::selector(selector)),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    };
    wanted(DISRUPTION_BUDGET, name, &object)
}
