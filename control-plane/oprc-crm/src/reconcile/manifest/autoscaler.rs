//! The autoscaler of a function's Deployment: fast up, gradual down.

use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscaler,
    HorizontalPodAutoscalerBehavior, HorizontalPodAutoscalerSpec, MetricSpec, MetricTarget,
    ResourceMetricSource,
};

use super::{Context, DesiredObject, FunctionPlan, desired_object};
use crate::kinds::{AUTOSCALER, DEPLOYMENT};

const CPU_PERCENT: i32 = 70;

pub(in crate::reconcile) fn autoscaler(
    context: &Context<'_>,
    plan: &FunctionPlan,
) -> DesiredObject {
    let policy = |type_: &str, value, period_seconds| HPAScalingPolicy {
        type_: type_.to_owned(),
        value,
        period_seconds,
    };
    let object = HorizontalPodAutoscaler {
        metadata: context.meta(&plan.workload, context.function_labels(plan)),
        spec: Some(HorizontalPodAutoscalerSpec {
            min_replicas: Some(plan.min),
            max_replicas: plan.max,
            scale_target_ref: CrossVersionObjectReference {
                api_version: Some(DEPLOYMENT.api_version()),
                kind: DEPLOYMENT.kind.to_string(),
                name: plan.workload.clone(),
            },
            metrics: Some(vec![MetricSpec {
                type_: "Resource".to_owned(),
                resource: Some(ResourceMetricSource {
                    name: "cpu".to_owned(),
                    target: MetricTarget {
                        type_: "Utilization".to_owned(),
                        average_utilization: Some(CPU_PERCENT),
                        ..MetricTarget::default()
                    },
                }),
                ..MetricSpec::default()
            }]),
            behavior: Some(HorizontalPodAutoscalerBehavior {
                scale_up: Some(HPAScalingRules {
                    stabilization_window_seconds: Some(0),
                    select_policy: Some("Max".to_owned()),
                    policies: Some(vec![policy("Percent", 100, 15), policy("Pods", 4, 15)]),
                    ..HPAScalingRules::default()
                }),
                scale_down: Some(HPAScalingRules {
                    stabilization_window_seconds: Some(300),
                    select_policy: Some("Max".to_owned()),
                    policies: Some(vec![policy("Percent", 10, 60)]),
                    ..HPAScalingRules::default()
                }),
            }),
        }),
        status: None,
    };
    DesiredObject { waits_for_odgm: true, ..desired_object(AUTOSCALER, &plan.workload, &object) }
}
