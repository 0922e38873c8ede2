//! The Service of a function or of the data grid.

use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};

use super::{DesiredObject, desired_object};
use crate::kinds::SERVICE;

pub(crate) fn service(metadata: ObjectMeta, spec: ServiceSpec) -> DesiredObject {
    desired_object(SERVICE, &Service { metadata, spec: Some(spec), status: None })
}

/// A port that leads to the container's port of the same name.
pub(crate) fn service_port(name: &str, port: i32) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port,
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::String(name.to_owned())),
        ..ServicePort::default()
    }
}
