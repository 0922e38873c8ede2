//! The Service of a function.

use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::{Context, FunctionPlan, Wanted, deployment::HTTP, wanted};
use crate::kinds::SERVICE;

/// The port that every function answers on, whatever its container listens on.
const PORT: i32 = 80;

/// Builds it.
pub(super) fn of_function(context: &Context<'_>, plan: &FunctionPlan) -> Wanted {
    let object = Service {
        metadata: context.meta(&plan.workload, context.function_labels(plan)),
        spec: Some(ServiceSpec {
            selector: Some(context.function_selector(plan)),
            ports: Some(vec![ServicePort {
                name: Some(HTTP.to_owned()),
                port: PORT,
                protocol: Some("TCP".to_owned()),
                target_port: Some(IntOrString::String(HTTP.to_owned())),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    };
    wanted(SERVICE, &plan.workload, &object)
}
