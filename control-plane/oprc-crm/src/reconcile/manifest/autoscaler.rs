//! The autoscaler of a function's Deployment: fast up, gradual down.

use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricSource, CrossVersionObjectReference, HPAScalingPolicy, HPAScalingRules,
    HorizontalPodAutoscaler, HorizontalPodAutoscalerBehavior, HorizontalPodAutoscalerSpec,
    MetricSpec, MetricTarget,
};

use oprc_unit::Scaling;

use super::{Context, DesiredObject, FunctionPlan, desired_object, pod::CONTAINER};
use crate::kinds::{AUTOSCALER, DEPLOYMENT};

pub(crate) fn autoscaler(context: &Context<'_>, plan: &FunctionPlan) -> DesiredObject {
    let policy = |type_: &str, value, period_seconds| HPAScalingPolicy {
        type_: type_.to_owned(),
        value,
        period_seconds,
    };
    let rules = |window: Duration, policies| HPAScalingRules {
        stabilization_window_seconds: i32::try_from(window.as_secs()).ok(),
        select_policy: Some("Max".to_owned()),
        policies: Some(policies),
        ..HPAScalingRules::default()
    };
    let Scaling { cpu_percent, up_window, up_percent, up_pods, down_window, down_percent, .. } =
        context.platform.scaling;
    let up = vec![policy("Percent", up_percent, 15), policy("Pods", up_pods, 15)];
    let down = vec![policy("Percent", down_percent, 60)];
    let object = HorizontalPodAutoscaler {
        metadata: context.meta(&plan.workload, context.function_labels(plan)),
        spec: Some(HorizontalPodAutoscalerSpec {
            min_replicas: Some(plan.floor),
            max_replicas: plan.max.max(plan.floor),
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
                        average_utilization: Some(cpu_percent),
                        ..MetricTarget::default()
                    },
                }),
                ..MetricSpec::default()
            }]),
            behavior: Some(HorizontalPodAutoscalerBehavior {
                scale_up: Some(rules(up_window, up)),
                scale_down: Some(rules(down_window, down)),
            }),
        }),
        status: None,
    };
    desired_object(AUTOSCALER, &object)
}
