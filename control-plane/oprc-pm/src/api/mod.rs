//! The REST API, the event stream, probes and metrics.
//!
//! Handlers are thin: each names the role it requires, parses the request, calls the registry or
//! the deployments, and serialises the result. Everything common is in [`middleware`].

mod body;
mod clusters;
mod deployments;
mod etag;
mod events;
mod examples;
mod metrics;
mod middleware;
mod openapi;
mod packages;
mod probes;
mod problem;
mod query;
mod runtimes;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::{
    Router, extract::DefaultBodyLimit, http::StatusCode, middleware::from_fn_with_state,
    routing::get,
};
use oprc_server::Access;
use tokio::sync::{Semaphore, watch};
use tower_http::timeout::TimeoutLayer;
use utoipa_axum::{router::OpenApiRouter, routes};

pub use self::metrics::Metrics;
use self::{
    middleware::{
        auth::{Auth, authenticate},
        cors,
        request_context::request_context,
    },
    problem::Failure,
};
use crate::{config::Limits, registry::Registry, service::DeploymentService};

/// State of all handlers. Cheap to clone.
#[derive(Clone)]
pub struct App {
    pub registry: Registry,
    pub deployments: Arc<DeploymentService>,
    pub metrics: Arc<Metrics>,
    /// A permit for each event stream that may be open.
    pub streams: Arc<Semaphore>,
    /// True once the process shuts down.
    pub stopping: watch::Receiver<bool>,
}

pub struct Options {
    pub access: Access,
    pub limits: Limits,
    pub cors_origins: Vec<String>,
    /// Whether `/docs` serves an interactive API reference.
    pub docs: bool,
}

/// All routes of the API with their OpenAPI description.
fn api() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(openapi::base())
        .routes(routes!(packages::list, packages::publish))
        .routes(routes!(packages::validate))
        .routes(routes!(packages::get, packages::delete))
        .routes(routes!(packages::versions))
        .routes(routes!(packages::get_version, packages::delete_version))
        .routes(routes!(packages::deprecate, packages::undeprecate))
        .routes(routes!(packages::classes))
        .routes(routes!(packages::functions))
        .routes(routes!(deployments::list, deployments::create))
        .routes(routes!(deployments::plan))
        .routes(routes!(deployments::get, deployments::put, deployments::delete))
        .routes(routes!(deployments::status))
        .routes(routes!(deployments::grid))
        .routes(routes!(deployments::history))
        .routes(routes!(deployments::rollback))
        .routes(routes!(runtimes::list))
        .routes(routes!(runtimes::get))
        .route("/api/v1/deployment-records", get(runtimes::list))
        .route("/api/v1/deployment-records/{id}", get(runtimes::get))
        .routes(routes!(runtimes::orphans))
        .routes(routes!(runtimes::adopt))
        .routes(routes!(runtimes::delete_orphan))
        .routes(routes!(clusters::list))
        .routes(routes!(clusters::get, clusters::forget))
        .routes(routes!(clusters::health))
        .routes(routes!(events::stream))
}

/// The OpenAPI document.
pub fn document() -> utoipa::openapi::OpenApi {
    openapi::finish(api().into_openapi())
}

/// The API, the probes and the documentation.
pub fn router(app: App, options: Options) -> Router {
    let (routes, document) = api().split_for_parts();
    let document = openapi::finish(document);
    let metrics = Arc::clone(&app.metrics);
    let auth = Auth::new(options.access, options.limits, Arc::clone(&metrics));
    let timeout =
        TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, options.limits.timeout);
    let open = probes::router(&document, options.docs);
    routes
        .layer(DefaultBodyLimit::max(options.limits.body_bytes))
        .layer(timeout)
        .layer(from_fn_with_state(auth, authenticate))
        .merge(open)
        .fallback(no_such_path)
        .with_state(app)
        .layer(cors(&options.cors_origins))
        .layer(from_fn_with_state(metrics, request_context))
}

async fn no_such_path() -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "NO_SUCH_PATH", "There is no resource at this path.")
}
