//! One port for gRPC, gRPC-Web, and HTTP for probes and metrics.

mod convert;
mod grpc;
mod http;
mod limit;
mod status;
mod watch;

use std::sync::Arc;

use axum::{Router, middleware::from_fn_with_state};
use oprc_grpc::deployment::deployment_service_server::DeploymentServiceServer;
use oprc_observability::LevelHandle;
use oprc_server::{Access, fallback, require};
use tonic::service::Routes;

use self::limit::{Limit, limit};
pub use self::{grpc::DeploymentApi, http::Probes};
use crate::{metrics::Metrics, service::Service};

/// Bound on a request message, in bytes.
const MAX_MESSAGE: usize = 4 << 20;

pub struct Parts {
    pub service: Arc<Service>,
    pub metrics: Arc<Metrics>,
    pub access: Access,
    /// How many calls are served at once.
    pub calls: usize,
    /// Changes the log level, if this process has logs of its own.
    pub level: Option<LevelHandle>,
}

pub fn router(parts: Parts) -> anyhow::Result<(Router, tonic_health::server::HealthReporter)> {
    let api = DeploymentApi::new(Arc::clone(&parts.service), Arc::clone(&parts.metrics));
    let deployment = DeploymentServiceServer::new(api)
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(16 * MAX_MESSAGE);
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(oprc_grpc::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let guarded = Routes::new(deployment)
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?)
        .into_axum_router();
    let (reporter, health) = tonic_health::server::health_reporter();
    // Unauthenticated, so it must be cheap.
    let health = health.max_decoding_message_size(1024);
    let open = Routes::new(health).into_axum_router().reset_fallback();
    let limits = Limit::new(parts.calls, Arc::clone(&parts.metrics));
    // Outermost: calls from browsers are translated to gRPC before anything else sees them.
    let grpc = guarded
        .reset_fallback()
        .layer(from_fn_with_state(limits, limit))
        .layer(from_fn_with_state(parts.access.clone(), require))
        .merge(open)
        .layer(tonic_web::GrpcWebLayer::new());
    let probes = Probes { service: parts.service, metrics: parts.metrics };
    let level = http::guarded(parts.level).layer(from_fn_with_state(parts.access, require));
    let router = grpc.merge(http::open(probes)).merge(level).fallback(fallback);
    Ok((router, reporter))
}
