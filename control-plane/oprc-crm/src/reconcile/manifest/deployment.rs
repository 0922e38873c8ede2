//! The Deployment of a function or of the data grid.

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment},
        core::v1::PodTemplateSpec,
    },
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};

use super::{DesiredObject, Labels, desired_object, selector};
use crate::kinds::DEPLOYMENT;

/// `surge` and `unavailable` limit how many pods an update adds and removes at a time.
pub(crate) fn deployment(
    metadata: ObjectMeta,
    pods: Labels,
    replicas: i32,
    [surge, unavailable]: [IntOrString; 2],
    template: PodTemplateSpec,
) -> DesiredObject {
    let object = Deployment {
        metadata,
        spec: Some(DeploymentSpec {
            replicas: Some(replicas),
            revision_history_limit: Some(2),
            selector: selector(pods),
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: Some(surge),
                    max_unavailable: Some(unavailable),
                }),
            }),
            template,
            ..DeploymentSpec::default()
        }),
        status: None,
    };
    desired_object(DEPLOYMENT, &object)
}
