//! The PodDisruptionBudget of a workload.

use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};

use super::{DesiredObject, Labels, desired_object, selector};
use crate::kinds::DISRUPTION_BUDGET;

pub(crate) fn budget(metadata: ObjectMeta, pods: Labels, max_unavailable: i32) -> DesiredObject {
    let object = PodDisruptionBudget {
        metadata,
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(max_unavailable)),
            selector: Some(selector(pods)),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    };
    desired_object(DISRUPTION_BUDGET, &object)
}
