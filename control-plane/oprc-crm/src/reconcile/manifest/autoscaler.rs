//! The autoscaler of a function's Deployment: fast up, gradual down.

use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricSource, CrossVersionObjectReference, HPAScalingPolicy, HPAScalingRules,
    HorizontalPodAutoscaler, HorizontalPodAutoscalerBehavior, HorizontalPodAutoscalerSpec,
    MetricSpec, MetricTarget,
};

use super::{Context, DesiredObject, FunctionPlan, desired_object, pod::CONTAINER};
use crate::kinds::{AUTOSCALER, DEPLOYMENT};

const CPU_PERCENT: i32 = 70;

pub(crate) fn autoscaler(context: &Context<'_>, plan: &FunctionPlan) -> DesiredObject {
    let policy = |type_: &str, value, period_seconds| HPAScalingPolicy {
        type_: type_.to_owned(),
        value,
        period_seconds,
    };
    let rules = |window, policies| HPAScalingRules {
        stabilization_window_seconds: Some(window),
        select_policy: Some("Max".to_owned()),
        policies: Some(policies),
        ..HPAScalingRules::default()
    };
    let object = HorizontalPodAutoscaler {
        metadata: context.meta(&plan.workload, context.function_labels(plan)),
        spec: Some(HorizontalPodAutoscalerSpec {
            min_replicas: Some(plan.min),
            max_replicas: plan.max,
            scale_target_ref: CrossVersionObjectReference {
                api_version: Some(DEPLOYMENT.api_version()),
                kind: DEPLOYMENT.to_string(),
                name: plan.workload.clone(),
            },
            metrics: Some(vec![MetricSpec {
                // Of the function alone: a proxy would skew the mean of the pod.
                type_: "ContainerResource".to_owned(),
                container_resource: Some(ContainerResourceMetricSource {
                    container: CONTAINER.to_owned(),
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
                scale_up: Some(rules(0, vec![policy("Percent", 100, 15), policy("Pods", 4, 15)])),
                scale_down: Some(rules(300, vec![policy("Percent", 10, 60)])),
            }),
        }),
        status: None,
    };
    desired_object(AUTOSCALER, &object)
}
