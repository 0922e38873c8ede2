//! Clusters, and how they are.

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use oprc_rest::{Cluster, Health, Page};

use super::{
    App,
    caller::{Admin, Viewer},
    problem::Answer,
    query::{Nothing, Query},
};
use crate::error::Error;

fn find(app: &App, name: &str) -> Answer<Cluster> {
    let found = app.deployments.clusters().into_iter().find(|cluster| cluster.name == name);
    Ok(found.ok_or_else(|| Error::not_found("cluster", name))?)
}

/// The clusters that are configured, by name.
#[utoipa::path(
    get,
    path = "/api/v1/clusters",
    tag = "clusters",
    responses((status = 200, description = "All clusters", body = Page<Cluster>)),
)]
pub(super) async fn list(_: Viewer, State(app): State<App>) -> Json<Page<Cluster>> {
    Json(Page { items: app.deployments.clusters(), next: None })
}

/// A cluster.
#[utoipa::path(
    get,
    path = "/api/v1/clusters/{name}",
    tag = "clusters",
    params(("name" = String, Path, description = "The cluster")),
    responses(
        (status = 200, description = "The cluster", body = Cluster),
        (status = 404, description = "There is no such cluster"),
    ),
)]
pub(super) async fn get(
    _: Viewer,
    State(app): State<App>,
    Path(name): Path<String>,
) -> Answer<Json<Cluster>> {
    Ok(Json(find(&app, &name)?))
}

/// Forgets what was driven on a cluster that isn't configured any more: it stays there as it is.
#[utoipa::path(
    delete,
    path = "/api/v1/clusters/{name}",
    tag = "clusters",
    params(("name" = String, Path, description = "The cluster")),
    responses(
        (status = 204, description = "Forgotten"),
        (status = 404, description = "There is nothing to forget"),
        (status = 409, description = "It is configured"),
    ),
)]
pub(super) async fn forget(
    Admin(caller): Admin,
    State(app): State<App>,
    Path(name): Path<String>,
    _: Query<Nothing>,
) -> Answer<StatusCode> {
    app.deployments.forget_cluster(&name, &caller).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Whether a cluster can be asked: the status says it, too, for those who only look at that.
#[utoipa::path(
    get,
    path = "/api/v1/clusters/{name}/health",
    tag = "clusters",
    params(("name" = String, Path, description = "The cluster")),
    responses(
        (status = 200, description = "It can be asked", body = Cluster),
        (status = 404, description = "There is no such cluster"),
        (status = 503, description = "It can't"),
    ),
)]
pub(super) async fn health(
    _: Viewer,
    State(app): State<App>,
    Path(name): Path<String>,
) -> Answer<Response> {
    let cluster = find(&app, &name)?;
    if cluster.health == Health::Unreachable {
        let detail = format!("{name} doesn't answer: {}", cluster.message);
        let status = StatusCode::SERVICE_UNAVAILABLE;
        return Err(super::Failure::new(status, "CLUSTER_UNREACHABLE", detail).retry_after(5));
    }
    Ok(Json(cluster).into_response())
}
