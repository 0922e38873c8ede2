//! What people and programs ask: REST, an event stream, probes and figures.
//!
//! Handlers are thin: each names who may ask, reads what was sent, asks the registry or the
//! deployments, and answers. What holds for all of them stands around them: [`mod@dress`] gives
//! each request a correlation id and each failure a problem document, [`cors`] answers browsers,
//! [`caller`] lets in who may.

mod answers;
mod asks;
mod body;
mod caller;
mod clusters;
mod conditional;
mod cors;
mod deployments;
mod dress;
mod events;
mod examples;
mod metrics;
mod openapi;
mod packages;
mod probes;
mod problem;
mod query;
mod rate;
mod runtimes;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::{Router, extract::DefaultBodyLimit, http::StatusCode, middleware::from_fn_with_state};
use oprc_server::Access;
use tokio::sync::{Semaphore, watch};
use utoipa_axum::{router::OpenApiRouter, routes};

pub use self::{
    asks::{Deploying, Expected, Told},
    metrics::Metrics,
};
use self::{
    caller::{Gate, gate},
    cors::{Origins, cors},
    dress::dress,
    problem::Failure,
};
use crate::{config::Limits, registry::Registry};

/// What handlers ask. Cheap to clone.
#[derive(Clone)]
pub struct App {
    /// Packages.
    pub registry: Registry,
    /// Deployments, clusters and events.
    pub deployments: Arc<dyn Deploying>,
    /// Figures.
    pub metrics: Arc<Metrics>,
    /// How many event streams may be open.
    pub streams: Arc<Semaphore>,
    /// Whether the process is on its way out.
    pub stopping: watch::Receiver<bool>,
}

/// How the port is used.
pub struct Options {
    /// Who may ask.
    pub access: Access,
    /// What requests are bounded by.
    pub limits: Limits,
    /// Origins whose pages may ask.
    pub cors_origins: Vec<String>,
    /// Whether there is a page to try the API.
    pub docs: bool,
}

/// All routes of the API, and the document that describes them.
fn api() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(openapi::about())
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
        .routes(routes!(deployments::history))
        .routes(routes!(deployments::rollback))
        .routes(routes!(runtimes::list))
        .routes(routes!(runtimes::list_records))
        .routes(routes!(runtimes::get))
        .routes(routes!(runtimes::get_record))
        .routes(routes!(runtimes::orphans))
        .routes(routes!(runtimes::adopt))
        .routes(routes!(runtimes::delete_orphan))
        .routes(routes!(clusters::list))
        .routes(routes!(clusters::get, clusters::forget))
        .routes(routes!(clusters::health))
        .routes(routes!(events::stream))
}

/// The document that describes the API.
pub fn document() -> utoipa::openapi::OpenApi {
    openapi::finish(api().into_openapi())
}

/// Everything that the port serves.
pub fn router(app: App, options: Options) -> Router {
    let (routes, document) = api().split_for_parts();
    let document = openapi::finish(document);
    let metrics = Arc::clone(&app.metrics);
    let gates = Gate::new(options.access, options.limits, Arc::clone(&metrics));
    let open = probes::router(&document, options.docs);
    routes
        .layer(DefaultBodyLimit::max(options.limits.body_bytes))
        .layer(from_fn_with_state(gates, gate))
        .merge(open)
        .fallback(nothing)
        .with_state(app)
        .layer(from_fn_with_state(Origins::new(&options.cors_origins), cors))
        .layer(from_fn_with_state(metrics, dress))
}

async fn nothing() -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "NO_SUCH_PATH", "There is nothing at this path.")
}
